package protocol

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestOnlyAnIncarnationSealsItsEnd(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	other := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 1))
	public := func(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }
	end := func() quota.Instance {
		i := quota.Instance{ID: NewID("worker-7", public(key)), Until: newYear}
		Seal(&i, key)
		return i
	}
	if i := end(); i.ID != "worker-7.E545QOZLVJFyIIjZoNdBYg" || !Sealed(&i) {
		t.Errorf("%+v is not sealed", i)
	}
	b, err := json.Marshal(end())
	read := quota.Instance{ID: end().ID}
	if err != nil || json.Unmarshal(b, &read) != nil || !Sealed(&read) {
		t.Errorf("not sealed as read from %s: %v", b, err)
	}
	for name, change := range map[string]func(i *quota.Instance){
		"no end":          func(i *quota.Instance) { i.Until = time.Time{} },
		"another end":     func(i *quota.Instance) { i.Until = i.Until.Add(-1) },
		"another's key":   func(i *quota.Instance) { Seal(i, other) },
		"another's":       func(i *quota.Instance) { i.ID = NewID("worker-7", public(other)) },
		"another name":    func(i *quota.Instance) { i.ID = NewID("worker-8", public(key)) },
		"an old ID":       func(i *quota.Instance) { i.ID = "worker-7.1a2b.1"; Seal(i, key) },
		"no dot":          func(i *quota.Instance) { i.ID = "worker"; Seal(i, key) },
		"no seal":         func(i *quota.Instance) { i.Seal = "" },
		"a short one":     func(i *quota.Instance) { i.Seal = i.Seal[:43] },
		"a damaged one":   func(i *quota.Instance) { i.Seal = i.Seal[:50] + flipped(i.Seal[50:]) },
		"a damaged key":   func(i *quota.Instance) { i.Seal = flipped(i.Seal) },
		"a line break":    func(i *quota.Instance) { i.Seal = i.Seal[:127] + "\n" },
		"no text":         func(i *quota.Instance) { i.Seal = "!" + i.Seal[1:] },
		"bytes behind it": func(i *quota.Instance) { i.Seal += "A" },
	} {
		i := end()
		if change(&i); Sealed(&i) {
			t.Errorf("%s: sealed", name)
		}
	}
}

// flipped is a text with another first character.
func flipped(text string) string {
	if text[0] == 'A' {
		return "B" + text[1:]
	}
	return "A" + text[1:]
}
