package admin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// keyLimits is a change of one key; no text deletes its override.
func keyLimits(key, text string) map[string]*protocol.Override {
	if text == "" {
		return map[string]*protocol.Override{key: nil}
	}
	o, err := protocol.ParseOverride(text)
	if err != nil {
		panic(err)
	}
	return map[string]*protocol.Override{key: o}
}

func to(changes map[string]*protocol.Override) func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
	return func(protocol.KeyOverrides) (map[string]*protocol.Override, error) { return changes, nil }
}

// setKeyed sets a policy of p with limits by key.
func setKeyed(f *fixture) {
	p := limit(1000)
	p.Keys.Limits = []quota.Limit{{Permits: 80, Window: time.Second}}
	if _, err := f.admin.Put(f.t.Context(), "p", p); err != nil {
		f.t.Fatal(err)
	}
}

// TestOverridesAreSetTogetherAndRecorded: set, changed, deleted, and set to what they are; with
// the author and the reason.
func TestOverridesAreSetTogetherAndRecorded(t *testing.T) {
	f := setup(t)
	setKeyed(f)
	for n, c := range []struct {
		change map[string]*protocol.Override
		want   string // overrides after it
		record string // of its changes; empty: none
	}{
		{keyLimits("a/b", "30/s"), "a/b 30/s", "a/b  -> 30/s"},
		{keyLimits("a/b", "30/s"), "a/b 30/s", ""},
		{keyLimits("absent", ""), "a/b 30/s", ""},
		{keyLimits("c", "9/m,5/s"), "a/b 30/s, c 5/s,9/1m", "c  -> 5/s,9/1m"},
		{map[string]*protocol.Override{"a/b": nil, "c": keyLimits("", "7/s")[""]}, "c 7/s", "a/b 30/s -> , c 5/s,9/1m -> 7/s"},
		{keyLimits("c", "7/s owners=3"), "c 7/s owners=3", "c 7/s -> 7/s owners=3"},
		{keyLimits("c", "7/s owners=3"), "c 7/s owners=3", ""},
		{keyLimits("c", "7/s owners=0"), "c 7/s owners=0", "c 7/s owners=3 -> 7/s owners=0"},
		{keyLimits("c", ""), "", "c 7/s owners=0 -> "},
	} {
		changed, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", fmt.Sprint("reason ", n), to(c.change))
		if err != nil {
			t.Fatal(err)
		}
		o, err := feed.Inside(f.admin).Overrides(t.Context(), "p")
		var got []string
		for _, name := range slices.Sorted(maps.Keys(o.Keys)) {
			got = append(got, name+" "+o.Keys[name].String())
		}
		if text := strings.Join(got, ", "); text != c.want || err != nil || o.Problem != nil {
			t.Errorf("%d: %q, %v, %v, want %q", n, text, err, o.Problem, c.want)
		}
		words := func(all map[string][2]string) string {
			var text []string
			for _, name := range slices.Sorted(maps.Keys(all)) {
				text = append(text, name+" "+all[name][0]+" -> "+all[name][1])
			}
			return strings.Join(text, ", ")
		}
		records, err := f.admin.History(t.Context(), "p")
		told := map[string][2]string{}
		for name, k := range changed {
			told[name] = [2]string{k.Old.String(), k.New.String()}
		}
		if text := words(told); err != nil || text != c.record {
			t.Errorf("%d: changed %q, %v, want %q", n, text, err, c.record)
		}
		if r := records[0]; c.record != "" && (words(records[0].Keys) != c.record || r.Reason != fmt.Sprint("reason ", n) || r.Author == "" || r.New == nil || r.New.Limits[0].Permits != 1000) {
			t.Errorf("%d: recorded %+v", n, r)
		} else if c.record == "" && r.Reason == fmt.Sprint("reason ", n) {
			t.Errorf("%d: a change of nothing is recorded", n)
		}
	}
	// etcd has nothing left; nor after the policy is deleted.
	left := func() int64 {
		r, err := f.client.Get(t.Context(), f.admin.keys.AllOverrides("p"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	if n := left(); n != 0 {
		t.Errorf("%d documents without overrides are left", n)
	}
	if _, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(keyLimits("a", "1/s"))); err != nil || left() != 1 {
		t.Error(err)
	}
	if _, err := f.admin.Delete(t.Context(), "p", ""); err != nil || left() != 0 {
		t.Errorf("%v; a deleted policy leaves %d documents", err, left())
	}
}

// TestOverridesOfTwoWriters: a change of the policy, of the same document, of another one, or
// its deletion between reading and writing is a conflict.
func TestOverridesOfTwoWriters(t *testing.T) {
	f := setup(t)
	setKeyed(f)
	admin := f.admin
	meanwhile := func(change map[string]*protocol.Override) func() {
		return func() {
			if _, err := feed.Inside(admin).SetOverrides(t.Context(), "p", "", to(change)); err != nil {
				t.Error(err)
			}
		}
	}
	meanwhile(keyLimits("a", "5/s"))()
	for what, other := range map[string]func(){
		"the policy":       func() { setKeyed(f) },
		"the same key":     meanwhile(keyLimits("a", "6/s")),
		"another document": meanwhile(keyLimits("b", "6/s")),
		"a deletion":       meanwhile(keyLimits("a", "")),
	} {
		_, err := feed.Inside(admin).SetOverrides(t.Context(), "p", "", func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
			other()
			return keyLimits("a", "7/s"), nil
		})
		if conflict := (*ConflictError)(nil); !errors.As(err, &conflict) || what != "the policy" && !strings.Contains(err.Error(), "overrides of keys of p were changed") {
			t.Errorf("%s: %v", what, err)
		}
		meanwhile(keyLimits("a", "5/s"))()
	}
}

// TestBoundsOfOverrides: each refusal names the value, the bound and the way out, and writes
// nothing.
func TestBoundsOfOverrides(t *testing.T) {
	f := setup(t)
	f.set("p", "1000/s")
	refused := func(what string, changes map[string]*protocol.Override, want ...string) {
		t.Helper()
		_, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(changes))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %.300v, want %q", what, err, w)
			}
		}
	}
	refused("no limits by key", keyLimits("a", "1/s"), "p has no limits by key", "--keys 80/s")
	setKeyed(f)
	refused("an empty name", keyLimits("", "1/s"), "is empty")
	refused("a long name", keyLimits(strings.Repeat("x", 257), "1/s"), "has 257 bytes, more than the most, 256")
	refused("many owners", keyLimits("a", "5/s owners=17"), `key "a"`, "keys.owners 17")
	refused("no permits of an hour", map[string]*protocol.Override{"a": {Limits: []quota.Limit{{Window: time.Hour}}}}, `key "a"`, "must be from 1 to")
	many := map[string]*protocol.Override{}
	for i := range protocol.MaxOverrides + 1 {
		many[fmt.Sprint("installation-", i)] = keyLimits("", "10000/s")[""]
	}
	refused("too many", many, "10001 overrides", "at most 10000", "delete some")
	long := map[string]*protocol.Override{}
	for i := range 5000 {
		long[fmt.Sprintf("%0256d", i)] = keyLimits("", "10000/s")[""]
	}
	refused("too long a record", long, "the history record of 5000 changes", "make it several")
	crowded := map[string]*protocol.Override{}
	for i := 0; len(crowded) < 300; i++ {
		if name := fmt.Sprintf("%0250d", i); protocol.OverrideBucket(name) == 5 {
			crowded[name] = keyLimits("", "10000/s")[""]
		}
	}
	refused("a crowded document", crowded, "the 300 overrides of document 05", "at most 65536", "shorter names")
	if o, err := feed.Inside(f.admin).Overrides(t.Context(), "p"); err != nil || len(o.Keys) != 0 {
		t.Errorf("refused changes left %d overrides, %v", len(o.Keys), err)
	}
	delete(many, "installation-7")
	if _, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(many)); err != nil {
		t.Fatal(err)
	}
	refused("one more", keyLimits("one more", "1/s"), "10001 overrides")
	if records, err := f.admin.History(t.Context(), "p"); err != nil || len(records[0].Keys) != protocol.MaxOverrides {
		t.Errorf("the record has %d changes, %v", len(records[0].Keys), err)
	}
	if all, err := f.admin.List(t.Context()); err != nil || len(all) != 1 || all[0].Provider != "p" {
		t.Errorf("listed %v, %v", all, err)
	}
	if _, err := feed.Inside(f.admin).Overrides(t.Context(), "q"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want that q has no policy", err)
	}
}

// TestOverridesWithoutLimitsByKey: after a policy has lost its limits by key its overrides can be
// read and deleted, and no other can be set.
func TestOverridesWithoutLimitsByKey(t *testing.T) {
	f := setup(t)
	setKeyed(f)
	admin := feed.Inside(f.admin)
	for _, key := range []string{"a", "b"} {
		if _, err := admin.SetOverrides(t.Context(), "p", "", to(keyLimits(key, "9/s owners=1"))); err != nil {
			t.Fatal(err)
		}
	}
	f.set("p", "1000/s")
	if o, err := admin.Overrides(t.Context(), "p"); err != nil || len(o.Keys) != 2 {
		t.Errorf("%v, %v, want two overrides", o.Keys, err)
	}
	for _, change := range []map[string]*protocol.Override{
		keyLimits("a", "8/s"), {"a": nil, "c": keyLimits("", "8/s")[""]},
	} {
		if _, err := admin.SetOverrides(t.Context(), "p", "", to(change)); err == nil || !strings.Contains(err.Error(), "no limits by key") {
			t.Errorf("%v for %v", err, change)
		}
	}
	if changed, err := admin.SetOverrides(t.Context(), "p", "", to(keyLimits("a", ""))); err != nil || len(changed) != 1 {
		t.Errorf("%v, %v", changed, err)
	}
	if o, err := admin.Overrides(t.Context(), "p"); err != nil || len(o.Keys) != 1 || o.Keys["b"] == nil {
		t.Errorf("%v, %v, want that of b", o.Keys, err)
	}
}
