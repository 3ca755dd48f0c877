package limittest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// owning has keys of 10 permits per second, which their owners have and do not lend.
func owning(owners int64) quota.Policy {
	p := policy("1000000/s")
	p.Lend = "off"
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Owners: owners}
	return p
}

// owners is a fleet whose limiters are known by the names of their instances.
type owners struct {
	t     *testing.T
	fleet *limittest.Fleet
	by    map[string]*consumer.Limiter
	at    map[string]*limittest.Instance
}

func newOwners(t *testing.T, p quota.Policy, n int) *owners {
	fleet, err := limittest.New(p, n)
	if err != nil {
		t.Fatal(err)
	}
	f := &owners{t, fleet, map[string]*consumer.Limiter{}, map[string]*limittest.Instance{}}
	for _, i := range fleet.Instances() {
		f.open(i)
	}
	f.nextSecond()
	return f
}

func (f *owners) open(i *limittest.Instance) {
	l := open(f.t, i)
	name := fmt.Sprintf("instance-%d", slices.Index(f.fleet.Instances(), i))
	f.by[name], f.at[name] = l, i
}

func (f *owners) id(i *limittest.Instance) string {
	for id, at := range f.at {
		if at == i {
			return id
		}
	}
	return ""
}

// close closes the limiter of an instance, which has no part in what follows.
func (f *owners) close(i *limittest.Instance) {
	id := f.id(i)
	_ = f.by[id].Close()
	delete(f.by, id)
}

func (f *owners) nextSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
}

// owner returns the owner of a key by all instances, which agree if it has one.
func (f *owners) owner(key string) (owner string) {
	f.t.Helper()
	for id, l := range f.by {
		name, self := l.Key(key).Owner()
		if f.by[name] == nil || self != (name == id) || owner != "" && name != owner {
			f.t.Fatalf("%s: %s says %s, %v; another one says %s", key, id, name, self, owner)
		}
		owner = name
	}
	return owner
}

// all takes what every instance has of a key.
func (f *owners) all(key string) (n int64) {
	for _, l := range f.by {
		n += l.Key(key).TryTake(100).N()
	}
	return n
}

// The owner of a key has all of its limit. The others name it, and refuse at once.
func TestAKeysOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOwners(t, owning(1), 3)
		for k := range 20 {
			key := fmt.Sprint("key-", k)
			o := f.owner(key)
			for id, l := range f.by {
				if id == o {
					continue
				}
				began := time.Now()
				for _, wait := range []time.Duration{0, time.Second} {
					err := l.Key(key).Acquire(t.Context(), wait)
					var limited consumer.LimitError
					if !errors.As(err, &limited) || limited.Reason != consumer.ReasonSpent || !strings.Contains(err.Error(), key+"\": its owner "+o+" has lent none") || limited.Owner != o || !limited.RetryAt.IsZero() || limited.Total != 10 || limited.Share != 0 {
						t.Fatalf("%s on %s: %v (%+v), want its owner %s", key, id, err, limited, o)
					}
				}
				if time.Since(began) > 0 || l.Key(key).TryAcquire() || l.Key(key).TryTake(2).N() > 0 {
					t.Fatalf("%s: %s waited, or issued permits", key, id)
				}
			}
			owner := f.by[o].Key(key)
			if n := owner.TryTake(100).N(); n != 10 {
				t.Fatalf("%s: its owner has %d permits, want 10", key, n)
			}
			var spent consumer.LimitError
			if err := owner.Acquire(t.Context(), 0); !errors.As(err, &spent) || spent.Owner != "" {
				t.Fatalf("%s: its owner has spent it: %v", key, err)
			}
			if allocated := testing.AllocsPerRun(10, func() { owner.Owner() }); allocated > 0 {
				t.Errorf("%v allocations to tell an owner", allocated)
			}
		}
	})
}

// Several owners divide a key's limit. Each says that it is one.
func TestSeveralOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOwners(t, owning(3), 5)
		for k := range 20 {
			key, has := fmt.Sprint("key-", k), map[int64]int{}
			for id, l := range f.by {
				name, self := l.Key(key).Owner()
				n := l.Key(key).TryTake(100).N()
				if has[n]++; self != (n > 0) || self != (name == id) || l.Key(key).TryAcquire() {
					t.Errorf("%s: %s has %d permits and says that the owner is %s", key, id, n, name)
				}
			}
			if has[4] != 1 || has[3] != 2 || has[0] != 2 {
				t.Errorf("%s: so many instances have so many permits: %v", key, has)
			}
		}
	})
}

// A key of an instance that leaves or joins as planned moves at a window's edge, and loses
// nothing. After a crash the instance's keys have no permits until the settle time is over,
// and all others have theirs.
func TestAKeyMovesToAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOwners(t, owning(1), 4)
		keys := make([]string, 200)
		for k := range keys {
			keys[k] = fmt.Sprint("key-", k)
		}
		owned := func(id string) (all map[string]bool) {
			all = map[string]bool{}
			for _, key := range keys {
				if f.owner(key) == id {
					all[key] = true
				}
			}
			return all
		}
		use := func(what string, lost map[string]bool, seconds int) {
			for second := range seconds {
				for _, key := range keys {
					want := int64(10)
					if lost[key] {
						want = 0
					}
					o := f.owner(key)
					if n, others := f.by[o].Key(key).TryTake(100).N(), f.all(key); n != want || others > 0 {
						t.Fatalf("%s, second %d: the owner of %s has %d permits, want %d; the others have %d", what, second, key, n, want, others)
					}
				}
				f.nextSecond()
			}
		}
		use("at rest", nil, 2)
		f.open(f.fleet.Join())
		use("a join", nil, 7)
		gone := f.fleet.Instances()[0]
		gone.Leave()
		use("a planned end", nil, 5)
		f.close(gone)
		use("a closed limiter", nil, 1)
		gone = f.fleet.Instances()[1]
		lost := owned(f.id(gone))
		if len(lost) < 20 || len(lost) > 100 {
			t.Errorf("one of 4 instances owns %d of 200 keys", len(lost))
		}
		gone.Kill()
		f.close(gone)
		use("a crash", lost, 4)
		use("after the settle time", nil, 2)
	})
}
