package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// keysOf is so many permits of some keys in the running second.
func keysOf(permits int64, names ...string) protocol.Note {
	n := protocol.Note{Windows: secondOf(time.Now().UnixNano()), Permits: map[string]int64{}}
	for _, name := range names {
		n.Permits[name] = permits
	}
	return n
}

// An ask for keys reaches its host alone, and a loan its guest, beside those of the provider.
func TestAsksAndLoansOfKeys(t *testing.T) {
	t.Parallel()
	_, host, guest, other := three(t)
	from, to := host.told().self, guest.told().self
	heard := func(of func(r *recorder) []ofKeys, at *recorder, who, key string, permits int64) func() bool {
		return at.is(func(r *recorder) bool {
			return slices.ContainsFunc(of(r), func(n ofKeys) bool { return n.who == who && n.permits[key] == permits })
		})
	}
	asked := func(r *recorder) []ofKeys { return r.keyAsked }
	borrowed := func(r *recorder) []ofKeys { return r.keyBorrowed }
	await.Until(t, "an ask arrives", func() bool {
		guest.carrier.Ask(to, []protocol.Request{{Host: from, Note: needOf("x", protocol.Need{Permits: 3})}})
		guest.carrier.Ask(to, []protocol.Request{{Host: from, Note: needOf("y", protocol.Need{Permits: 4})}})
		return heard(asked, host, to, "x", 3)() && heard(asked, host, to, "y", 4)()
	})
	await.Until(t, "a loan arrives", func() bool {
		host.carrier.Tell(from, to, loanOf(9))
		host.carrier.Tell(from, to, keysOf(2, "x", "y"))
		return heard(borrowed, guest, from, "x", 2)() && heard(borrowed, guest, from, "y", 2)() &&
			guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, 9}) })()
	})
	other.is(func(r *recorder) bool {
		if len(r.keyAsked)+len(r.keyBorrowed) > 0 {
			t.Errorf("another one heard of %+v, %+v", r.keyAsked, r.keyBorrowed)
		}
		return true
	})()
	await.Until(t, "an ask of a sample arrives", func() bool {
		guest.carrier.Ask(to, []protocol.Request{{Note: needOf("z", protocol.Need{Permits: 5, Sample: protocol.Sample{Part: 1 << 32}})}})
		return heard(asked, host, to, "z", 5)() && heard(asked, other, to, "z", 5)()
	})
	host.is(func(r *recorder) bool {
		if len(r.asked) > 0 {
			t.Errorf("asks for keys were taken for the provider's: %+v", r.asked)
		}
		return true
	})()
}

// A message about many keys is passed on in parts, by each of which the session's lock is given up:
// proofs of other providers are not kept waiting.
func TestManyKeysArePassedOnInParts(t *testing.T) {
	t.Parallel()
	f, host, guest, _ := three(t)
	from, to, s := host.told().self, guest.told().self, f.sessions[0]
	var names []string
	for i := range 5*mostKeysAtOnce + 1 {
		names = append(names, fmt.Sprintf("key-%03d", i))
	}
	loan, ask := keysOf(3, names...), needOf("", protocol.Need{Permits: 1})
	for _, name := range names {
		ask.Needs[name] = protocol.Need{Permits: 3000}
	}
	text := func(n protocol.Note) []byte {
		value, err := json.Marshal([]protocol.Note{n})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	all := func(heard []ofKeys) (got []string) {
		for _, n := range heard {
			if len(n.permits) > mostKeysAtOnce {
				t.Errorf("%d keys were passed on at once", len(n.permits))
			}
			got = append(got, slices.Sorted(maps.Keys(n.permits))...)
		}
		return got
	}
	s.heardAsk(&mvccpb.KeyValue{Key: []byte(keys.In(s.keys.Asks("p", from), to)), Value: text(ask)})
	folder := s.keys.Loans("p", from)
	s.mu.memberships["p"].heardLoan(from, folder, &mvccpb.KeyValue{Key: []byte(keys.In(folder, to)), Value: text(loan)})
	host.is(func(r *recorder) bool {
		for what, got := range map[string][]string{"ask": all(r.keyAsked), "loan": all(r.keyBorrowed)} {
			if !slices.Equal(got, names) {
				t.Errorf("of the keys of one %s, %d of %d were passed on, or in another order", what, len(got), len(names))
			}
		}
		return true
	})()
}

// Notes that wait to be written to the same instance are written as one message: joined where their
// windows are the same. What is of a window that has ended meanwhile is left out.
func TestNotesWaitTogether(t *testing.T) {
	t.Parallel()
	p := &membership{s: &Session{post: post{news: make(chan struct{}, 1)}}}
	now := time.Now().UnixNano()
	first := protocol.Note{Windows: secondOf(now), Permits: map[string]int64{"a": 1}}
	p.write("me", "k/", first)
	p.write("me", "k/", protocol.Note{Windows: first.Windows, Permits: map[string]int64{"b": 2}})
	p.write("me", "k/", protocol.Note{Windows: first.Windows, Permits: map[string]int64{"": 3}})
	p.write("me", "k/", protocol.Note{Windows: []quota.Window{quota.WindowAt(time.Minute, now+int64(time.Minute))}, Permits: map[string]int64{"c": 4}})
	all := p.s.post.take()
	if len(all) != 1 {
		t.Fatalf("%d letters, want 1", len(all))
	}
	message, err := protocol.ReadNotes([]byte(all[0].text(now)))
	if err != nil || len(message) != 2 || !maps.Equal(message[0].Permits, map[string]int64{"": 3, "a": 1, "b": 2}) || message[1].Permits["c"] != 4 {
		t.Errorf("%+v, %v", message, err)
	}
	if message, err = protocol.ReadNotes([]byte(all[0].text(first.Windows[0].End()))); err != nil || len(message) != 1 || message[0].Permits["c"] != 4 {
		t.Errorf("after the second: %+v, %v", message, err)
	}
	if text := all[0].text(now + int64(2*time.Minute)); text != "" {
		t.Errorf("after the minutes: %s", text)
	}
	p.s.post.put(letter{p, "me", "k", []protocol.Note{first}})
	p.s.post.put(letter{p, "me again", "k", []protocol.Note{keysOf(2, "b")}})
	if all = p.s.post.take(); len(all) != 1 || all[0].notes[0].Permits["a"] != 0 {
		t.Errorf("of an incarnation before, %+v was kept", all)
	}
}
