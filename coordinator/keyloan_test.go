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
)

// keysOf is so many permits of some keys in the running second.
func keysOf(permits int64, names ...string) protocol.KeyPermits {
	n := protocol.KeyPermits{Windows: secondOf(time.Now().UnixNano()), Permits: map[string]int64{}}
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
			return slices.ContainsFunc(of(r), func(n ofKeys) bool { return n.who == who && n.Permits[key] == permits })
		})
	}
	asked := func(r *recorder) []ofKeys { return r.keyAsked }
	borrowed := func(r *recorder) []ofKeys { return r.keyBorrowed }
	await.Until(t, "an ask arrives", func() bool {
		guest.carrier.AskKeys(to, map[string]protocol.KeyPermits{from: keysOf(3, "x")})
		guest.carrier.AskKeys(to, map[string]protocol.KeyPermits{from: keysOf(4, "y")})
		return heard(asked, host, to, "x", 3)() && heard(asked, host, to, "y", 4)()
	})
	await.Until(t, "a loan arrives", func() bool {
		host.carrier.Tell(from, to, loanOf(9))
		host.carrier.TellKeys(from, to, keysOf(2, "x", "y"))
		return heard(borrowed, guest, from, "x", 2)() && heard(borrowed, guest, from, "y", 2)() &&
			guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, 9}) })()
	})
	other.is(func(r *recorder) bool {
		if len(r.keyAsked)+len(r.keyBorrowed) > 0 {
			t.Errorf("another one heard of %+v, %+v", r.keyAsked, r.keyBorrowed)
		}
		return true
	})()
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
	value, err := json.Marshal(keysOf(3, names...))
	if err != nil {
		t.Fatal(err)
	}
	all := func(heard []ofKeys) (got []string) {
		for _, n := range heard {
			if len(n.Permits) > mostKeysAtOnce {
				t.Errorf("%d keys were passed on at once", len(n.Permits))
			}
			got = append(got, slices.Sorted(maps.Keys(n.Permits))...)
		}
		return got
	}
	s.heardAsk(&mvccpb.KeyValue{Key: []byte(keys.OfKeysIn(s.keys.Asks("p", from), to)), Value: value})
	folder := s.keys.Loans("p", from)
	s.mu.memberships["p"].heardLoan(from, folder, &mvccpb.KeyValue{Key: []byte(keys.OfKeysIn(folder, to)), Value: value})
	host.is(func(r *recorder) bool {
		for what, got := range map[string][]string{"ask": all(r.keyAsked), "loan": all(r.keyBorrowed)} {
			if !slices.Equal(got, names) {
				t.Errorf("of the keys of one %s, %d of %d were passed on, or in another order", what, len(got), len(names))
			}
		}
		return true
	})()
}

// Messages about keys that wait to be written are written as one.
func TestKeysWaitTogether(t *testing.T) {
	t.Parallel()
	p := &membership{s: &Session{post: post{news: make(chan struct{}, 1)}}}
	first := keysOf(1, "a")
	p.postKeys("me", "k", first)
	p.postKeys("me", "k", protocol.KeyPermits{Windows: first.Windows, Permits: map[string]int64{"b": 2}})
	all := p.s.post.take()
	if len(all) != 1 {
		t.Fatalf("%d letters, want 1", len(all))
	}
	b, err := json.Marshal(all[0].value)
	if err != nil {
		t.Fatal(err)
	}
	n, err := protocol.ReadKeyPermits(b)
	if err != nil || n.Permits["a"] != 1 || n.Permits["b"] != 2 {
		t.Errorf("%s, %v", b, err)
	}
}
