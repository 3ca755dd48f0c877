package consumer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// refusedBy returns the refusal of a call of a key that does not wait.
func refusedBy(t *testing.T, y Key) (e LimitError) {
	t.Helper()
	if err := y.Acquire(t.Context(), 0); !errors.As(err, &e) {
		t.Fatalf("%v, want a refusal", err)
	}
	return e
}

// nextWindow returns the start of the next window of a second.
func nextWindow() time.Time { return time.Now().Truncate(time.Second).Add(time.Second) }

// An instance that does not own a key may be lent permits of it in the next window, where instances lend, and says so.
// Where they do not, nobody knows when it has some.
func TestWhenToAskAgainForAnothersKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := keyMarket(t, 10, 1, quota.OutageHold, "a", "b")
		for _, name := range []string{"k1", "k2", "k3", "k4"} {
			owner, _ := all["a"].Key(name).Owner()
			guest := all[map[string]string{"a": "b", "b": "a"}[owner]].Key(name)
			if n := all[owner].Key(name).TryTake(10).N(); n != 10 {
				t.Fatalf("the owner has %d permits", n)
			}
			for range 2 {
				time.Sleep(100 * time.Millisecond)
				e, at := refusedBy(t, guest), nextWindow()
				if e.Owner != owner || !e.RetryAt.Equal(at) || !strings.Contains(e.Error(), "or wait; next at "+at.UTC().Format("15:04:05.000 UTC")) {
					t.Errorf("%v, RetryAt %v, want %v", e, e.RetryAt, at)
				}
				if d := guest.delay(1); d != time.Until(at) {
					t.Errorf("Delay is %v, want %v", d, time.Until(at))
				}
			}
		}
	})
}

// After the crash of a key's owner nobody has permits of it for the settle time. The new owner's refusals name the window in
// which they come, whatever other instances there are.
func TestWhenANewOwnerHasTheKey(t *testing.T) {
	for _, ids := range [][]string{{"a", "b"}, {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			m, all := keyMarket(t, 10, 1, quota.OutageHold, ids...)
			owners := map[string]string{}
			for name := range strings.FieldsSeq("k1 k2 k3 k4 k5 k6 k7 k8") {
				owners[name], _ = all["b"].Key(name).Owner()
			}
			time.Sleep(300 * time.Millisecond)
			crashed := time.Now()
			for _, id := range ids[1:] {
				m.sinks[id].sink.Apply(m.sinks[id].clock.Now(), protocol.Change{Revision: 2, Deleted: []string{"a"}})
			}
			_ = all["a"].Close()
			settle := 3 * time.Second
			want, inherited := crashed.Add(settle).Truncate(time.Second).Add(time.Second), 0
			for time.Now().Before(want) {
				for name, was := range owners {
					owner, _ := all["b"].Key(name).Owner()
					if was != "a" {
						continue
					}
					inherited++
					y := all[owner].Key(name)
					e := refusedBy(t, y)
					if !e.RetryAt.Equal(want) || !strings.Contains(e.Error(), "settle time (3s); next at "+want.UTC().Format("15:04:05.000 UTC")) || y.delay(1) != time.Until(want) {
						t.Errorf("%v: at %v: %v, RetryAt %v, Delay %v, want %v", ids, time.Now(), e, e.RetryAt, y.delay(1), want)
					}
				}
				time.Sleep(500 * time.Millisecond)
				m.prove()
			}
			if inherited == 0 {
				t.Error("no key had the owner that crashed")
			}
			time.Sleep(time.Until(want))
			m.prove()
			for name := range owners {
				owner, _ := all["b"].Key(name).Owner()
				if n := all[owner].Key(name).TryTake(10).N(); n != 10 {
					t.Errorf("%v: then %s has %d permits of %s", ids, owner, n, name)
				}
			}
		})
	}
}

// Of a key that is blocked, as of a provider that is, nobody knows when permits come: there is no time to ask again, and
// a call that can wait does not wait in vain.
func TestABlockedKeyNamesNoTime(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}} {
		for _, owners := range []int64{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				none := []quota.Limit{{Permits: 0, Window: time.Second}}
				m, all := keyMarketBeside(t, quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Owners: owners},
					map[string]*protocol.Override{"key": {Limits: none}}, quota.OutageHold, ids...)
				m.prove()
				y, began := all["a"].Key("key"), time.Now()
				for i, wait := range []time.Duration{0, 5 * time.Second, 0} {
					if i == 2 {
						all["a"].PauseUntil(began.Add(300 * time.Millisecond)) // which does not end in permits
					}
					var e LimitError
					if err := y.Acquire(t.Context(), wait); !errors.As(err, &e) || !e.RetryAt.IsZero() || strings.Contains(err.Error(), "next at") ||
						i < 2 && !strings.HasSuffix(err.Error(), `the limit of 0/s permits no call: an operator raises it by quota-admin keys set p key LIMITS`) {
						t.Errorf("%v, %d owners: %v, RetryAt %v", ids, owners, err, e.RetryAt)
					}
				}
				if d := y.delay(1); d != Forever || time.Since(began) > 0 {
					t.Errorf("%v, %d owners: Delay is %v, after %v", ids, owners, d, time.Since(began))
				}
			})
		}
	}
}

// Of several limits of a key that are used up here others may have permits in the next window of the shortest, as of a
// provider.
func TestWhenToAskAgainForAKeyOfTwoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarketOf(t, quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, {Permits: 12, Window: time.Minute}}}, quota.OutageHold, "a", "b")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		m.prove()
		for _, n := range []int64{5, 1} {
			if got := all["a"].Key("key").TryTake(n).N(); got != n {
				t.Fatalf("%d permits, want %d", got, n)
			}
			time.Sleep(time.Second)
			m.prove()
		}
		if e := refusedBy(t, all["a"].Key("key")); !e.RetryAt.Equal(nextWindow()) {
			t.Errorf("%v: RetryAt %v, want %v", e, e.RetryAt, nextWindow())
		}
	})
}

// A provider of 0/s has no time to ask again either, and an instance that joins it gets no share by the settle time.
func TestABlockedProviderNamesNoTime(t *testing.T) {
	for _, lend := range []string{"on", "off"} {
		synctest.Test(t, func(t *testing.T) {
			p := policyOf(t, "0/s")
			p.Lend = lend
			s := &stub{clock: clock.New()}
			l := open(t, s.source(), Options{})
			s.sink.Reset(s.clock.Now(), "a", protocol.View{Revision: 1, Policy: withDefaults(p), PolicyRevision: 1, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
			for range 10 {
				s.prove()
				var e LimitError
				if err := l.Acquire(t.Context(), 0); !errors.As(err, &e) || !e.RetryAt.IsZero() ||
					e.Reason == ReasonSpent && !strings.HasSuffix(err.Error(), `the limit of 0/s permits no call: an operator raises it by quota-admin set p LIMITS`) {
					t.Errorf("lend %s: %v, RetryAt %v", lend, err, e.RetryAt)
				}
				time.Sleep(500 * time.Millisecond)
				if time.Now().Nanosecond() == 0 {
					l.PauseUntil(time.Now().Add(300 * time.Millisecond)) // a pause does not end in permits
				}
			}
		})
	}
}
