package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// treasury is a naive etcd with the totals of keys' long windows.
type treasury struct {
	totals map[string][]byte
	at     map[string]int64
	away   bool
	lost   string // why a total that is not there says nothing, as after a restore
	writes int
	told   []*stub       // who hears of totals of calls in flight
	late   time.Duration // how much more than a millisecond after their writes
	fleet  int64         // how many instances there are; 0: as many as are served
}

// serve answers all that the sinks want, until they want nothing more.
func (b *treasury) serve(all ...*stub) (uses int) {
	for _, s := range all {
		for {
			some, _ := s.sink.Uses(10)
			if uses += len(some); len(some) == 0 {
				break
			}
			for i := range some {
				b.answer(&some[i], cmp.Or(b.fleet, int64(len(all))))
			}
			s.sink.Fund(some)
			if b.away {
				break
			}
		}
	}
	return uses
}

// play has etcd answer for some seconds. In each of them all instances have a fresh proof, and
// then call is called, unless it is nil.
func (b *treasury) play(seconds int, sinks []*stub, call func(second int)) {
	for second := range seconds {
		for _, s := range sinks {
			s.prove()
		}
		if call != nil {
			call(second)
		}
		b.serve(sinks...)
		time.Sleep(time.Second)
	}
}

func (b *treasury) answer(u *escrow.KeyUse, instances int64) {
	if u.Away = b.away; u.Away {
		u.Unsent = true
		return
	}
	key := fmt.Sprint(u.Key, u.TotalStart())
	verdict := &escrow.Verdict{Cluster: 7, Lost: b.lost}
	u.Purse.Read(b.totals[key], b.at[key], verdict)
	rule := escrow.Rule{Limit: u.Permits, Instances: instances, Share: u.Share, Now: time.Now().UnixNano()}
	if next, n, ok := u.Purse.Next(rule, u.Use, u.Back, verdict); ok {
		text, err := escrow.Encode(next)
		if err != nil {
			panic(err)
		}
		b.writes++
		b.totals[key], b.at[key] = []byte(text), b.at[key]+1
		u.Purse.Committed(next, n, b.at[key], verdict)
		name, at := u.Name(), b.at[key]
		for _, s := range b.told {
			time.AfterFunc(time.Millisecond+b.late, func() { s.sink.Heard(name, next, at) })
		}
	}
}

// policyByKey returns a policy with limits by key, and a large one for all.
func policyByKey(t *testing.T, limits string) *quota.Policy {
	t.Helper()
	p := policyOf(t, "1000000/s")
	parsed, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	p.Keys.Limits = parsed
	return withDefaults(p)
}

// longKeys returns limiters of instances that share limits by key, at the start of an hour.
func longKeys(t *testing.T, limits string, ids ...string) (*treasury, []*stub, []*Limiter) {
	t.Helper()
	return longFleet(t, policyByKey(t, limits), ids...)
}

// longFleet is longKeys with a policy.
func longFleet(t *testing.T, p *quota.Policy, ids ...string) (*treasury, []*stub, []*Limiter) {
	t.Helper()
	v := protocol.View{Revision: 1, Policy: p, PolicyRevision: 1}
	for _, id := range ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: id, Name: id})
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 4*time.Second)))
	var sinks []*stub
	var limiters []*Limiter
	for _, id := range ids {
		s := &stub{clock: clock.New()}
		limiters = append(limiters, open(t, s.source(), Options{}))
		s.sink.Reset(s.clock.Now(), id, v)
		sinks = append(sinks, s)
	}
	time.Sleep(4 * time.Second)
	for _, s := range sinks {
		s.prove()
	}
	return &treasury{totals: map[string][]byte{}, at: map[string]int64{}}, sinks, limiters
}

// hourlyFleet is longFleet of two instances with 100/h, of the provider or of each key, and who takes them at the first.
func hourlyFleet(t *testing.T, byKey bool) (*treasury, []*stub, Taker) {
	t.Helper()
	if byKey {
		bank, sinks, all := longKeys(t, "100/h", "a", "b")
		return bank, sinks, all[0].Key("x")
	}
	bank, sinks, all := longFleet(t, withDefaults(policyOf(t, "100/h")), "a", "b")
	return bank, sinks, all[0]
}

// All instances together issue exactly a key's limit of an hour, wherever its calls come from,
// and in the next hour again. A key that nobody calls costs nothing.
func TestKeysOfALongLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "40/s,100/h", "a", "b", "c")
		for hour := range 2 {
			issued := 0
			bank.play(60, sinks, func(second int) {
				for i, l := range all {
					for range 3 + i {
						if l.Key("x").TryAcquire() {
							issued++
						}
					}
				}
				if second == 30 {
					all[0].Key("y").TryAcquire()
				}
			})
			if issued != 100 {
				t.Errorf("hour %d: %d permits of a key, want 100", hour, issued)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
			for _, s := range sinks {
				s.prove()
			}
		}
		if n := bank.serve(sinks...); n != 0 {
			t.Errorf("%d uses though nobody calls", n)
		}
	})
}

func (l *Limiter) acquireKey(t *testing.T, name string, n int64) error {
	_, err := l.Key(name).Take(t.Context(), n, time.Second)
	return err
}

// A call before the first proof has etcd asked as soon as that has come, not a second later: by a view in doubt
// nothing would be taken.
func TestALongKeyBeforeTheFirstProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "80/s,100/h", "a")
		s, k := sinks[0], all[0].core
		s.sink.Reset(s.clock.Now(), "a", protocol.View{Revision: 1, Policy: policyByKey(t, "80/s,100/h"), PolicyRevision: 1, Instances: []protocol.Instance{{ID: "a"}}})
		if all[0].Key("x").TryAcquire() {
			t.Fatal("a permit before the first proof")
		}
		for len(s.sink.Wanting()) > 0 {
			<-s.sink.Wanting()
		}
		if n := bank.serve(sinks...); n != 0 {
			t.Errorf("%d uses before the first proof", n)
		}
		if s.prove(); len(k.wanting) != 1 {
			t.Error("the first proof has etcd asked for nothing")
		}
		if n := bank.serve(sinks...); n != 1 {
			t.Errorf("%d uses after the first proof, want that of the key", n)
		}
	})
}

// Without etcd a key has what is in hand. Its callers learn why there is no more, and those
// that wait are served when etcd is back.
func TestALongKeyWithoutEtcd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "100/h", "a", "b")
		key := all[0].Key("x")
		bank.away = true
		if key.TryAcquire() {
			t.Fatal("a permit of nothing")
		}
		bank.serve(sinks...)
		for _, why := range []string{"etcd has not answered", "the role does not allow it"} {
			var limited LimitError
			err := key.Acquire(t.Context(), 0)
			if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "none in hand of 100/h, and no more can be fetched: "+why) {
				t.Errorf("%v, want the cause: %s", err, why)
			}
			if again := time.Now().Add(time.Second); !errors.As(err, &limited) || !limited.RetryAt.Equal(again) {
				t.Errorf("%v, want another try at %v, when etcd has been asked again", err, again)
			}
			sinks[0].sink.Trouble(errors.New("the role does not allow it"))
		}
		sinks[0].sink.Trouble(nil)
		served := make(chan error)
		go func() { served <- key.Acquire(t.Context(), 5*time.Second) }()
		synctest.Wait()
		bank.away = false
		time.Sleep(1100 * time.Millisecond)
		bank.serve(sinks...)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// What is in hand is given back when the source ends, and by a key that rests: another instance
// has it.
func TestALongKeyGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "10/h", "a", "b")
		if err := all[0].acquireKey(t, "x", 6); !errors.Is(err, ErrLimited) && err != nil {
			t.Fatal(err)
		}
		bank.serve(sinks...)
		time.Sleep(5 * time.Second)
		if n := all[0].Key("x").TryTake(1).N(); n != 1 {
			t.Fatalf("%d permits, want 1", n)
		}
		bank.play(60, sinks, nil)
		issued := int64(1)
		bank.play(20, sinks, func(int) { issued += all[1].Key("x").TryTake(1).N() })
		if issued != 10 {
			t.Errorf("%d permits, want all 10", issued)
		}
		// y is in hand at the end.
		all[0].Key("y").TryAcquire()
		bank.serve(sinks...)
		_ = all[0].Close()
		sinks[0].sink.Close()
		before := bank.writes
		if bank.serve(sinks[0]); bank.writes != before+1 {
			t.Errorf("%d writes at the end, want one", bank.writes-before)
		}
	})
}

// Many keys give all back, in batches: when they rest, and at the end.
func TestManyLongKeysGiveBack(t *testing.T) {
	t.Parallel()
	for _, end := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, all := longKeys(t, "50/h,500/d,5000/mo", "a")
			for i := range 100 {
				all[0].Key(fmt.Sprint("k", i)).TryAcquire()
			}
			out := func() (n int64) {
				for _, text := range bank.totals {
					n += escrow.ReadTotal(text, 7).Out
				}
				return n
			}
			if bank.serve(sinks...); out() < 300 {
				t.Fatalf("%d permits are in hand, want one of each limit and more", out())
			}
			if end {
				_ = all[0].Close()
				sinks[0].sink.Close()
				bank.serve(sinks...)
			} else {
				bank.play(33, sinks, nil)
			}
			if out() != 0 {
				t.Errorf("end %v: %d permits are not given back", end, out())
			}
		})
	}
}

// A limiter without etcd has all of a key's long limit.
func TestALongKeyOfAFixedPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "1000000/s")
		p.Keys.Limits = []quota.Limit{{Permits: 5, Window: time.Hour}}
		l := open(t, Fixed(p), Options{})
		if n := l.Key("x").TryTake(9).N(); n != 5 {
			t.Errorf("%d permits, want 5", n)
		}
		var limited LimitError
		if err := l.Key("x").Acquire(t.Context(), 0); !errors.As(err, &limited) || time.Until(limited.RetryAt) > time.Hour {
			t.Error(err)
		}
	})
}

// A refusal of a key whose limits are all long names no short one, which nobody has set.
func TestALongKeyHasNoShortLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "1000000/s")
		p.Keys.Limits, p.Mode = []quota.Limit{{Permits: 5, Window: time.Hour}}, quota.ModePause
		l := open(t, Fixed(p), Options{})
		limited, _ := errors.AsType[LimitError](l.Key("x").Acquire(t.Context(), 0))
		if limited.Reason != ReasonPaused || limited.Total != 0 || limited.Share != 0 || limited.Window.Length != 0 {
			t.Errorf("%+v", limited)
		}
	})
}

// A batch has no more uses than etcd takes, whatever limits each key has; the other keys follow.
func TestABatchOfLongKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "50/h,500/d,5000/mo", "a")
		for i := range 100 {
			all[0].Key(fmt.Sprint("k", i)).TryAcquire()
		}
		<-sinks[0].sink.Wanting()
		for seen := 0; seen < 300; {
			some, _ := sinks[0].sink.Uses(64)
			if len(some) == 0 || len(some) > 64 {
				t.Fatalf("%d uses, %d before; want 300 in all, 64 at most at once", len(some), seen)
			}
			seen += len(some)
			for i := range some {
				bank.answer(&some[i], 1)
			}
			sinks[0].sink.Fund(some)
			if seen < 300 {
				<-sinks[0].sink.Wanting()
			}
		}
	})
}

// A caller that takes what there is, up to more than the limit, gets that.
func TestTryTakeOfALongKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "10/h", "a")
		got := int64(0)
		bank.play(3, sinks, func(int) { got += all[0].Key("x").TryTake(20).N() })
		if got != 10 {
			t.Errorf("%d permits, want 10", got)
		}
	})
}

// A caller that comes each minute, and does not wait, finds a permit from the third call on.
func TestASeldomCallerOfALongKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "5000/h", "a")
		for call := range 20 {
			bank.play(60, sinks, func(second int) {
				if second > 0 {
					return
				}
				if ok := all[0].Key("x").TryAcquire(); ok != (call >= 2) && call != 1 {
					t.Errorf("call %d: %v", call, ok)
				}
			})
		}
	})
}

// Shadow mode takes permits too: it says of calls what would be without it.
func TestALongKeyInShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "5000/h", "a")
		p := policyOf(t, "1000000/s")
		p.Keys.Limits, p.Mode = []quota.Limit{{Permits: 5000, Window: time.Hour}}, quota.ModeShadow
		sinks[0].sink.Apply(sinks[0].clock.Now(), protocol.Change{Revision: 2, Policy: withDefaults(p)})
		bank.play(10, sinks, func(int) {
			all[0].Key("x").TryAcquire()
			_ = all[0].Key("y").Acquire(t.Context(), 0)
			all[0].Key("z").TryTake(1)
		})
		if st := all[0].Status(); st.Shadowed > 6 {
			t.Errorf("%d calls would have been refused", st.Shadowed)
		}
	})
}

// What is in hand at an edge is not written back into the window that is over.
func TestALongKeyOverAnEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "5000/h", "a")
		time.Sleep(time.Hour - 5*time.Second)
		sinks[0].prove()
		all[0].Key("x").TryAcquire()
		bank.serve(sinks...)
		before := bank.writes
		bank.play(60, sinks, nil)
		if bank.writes != before {
			t.Errorf("%d writes for an hour that is over", bank.writes-before)
		}
	})
}

// A limit that goes and comes back within its window counts on, also without etcd.
func TestALongKeyWhoseLimitReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := policyOf(t, "1000000/s")
		with.Keys.Limits = []quota.Limit{{Permits: 100, Window: time.Second}, {Permits: 5, Window: time.Hour}}
		without := with
		without.Keys.Limits = with.Keys.Limits[:1]
		f := Fixed(with)
		l := open(t, f, Options{})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 5*time.Second)))
		got := l.Key("x").TryTake(100).N()
		if err := f.Set(without); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		between := l.Key("x").TryTake(1)
		if err := f.Set(with); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		between.Release() // it did not count
		if got += l.Key("x").TryTake(100).N(); got != 5 {
			t.Errorf("%d permits, want 5", got)
		}
	})
}

// What a restore withholds of a key is a problem of the limiter's, in the words of the refusal, until an
// operator has vouched for the totals, or the window ends.
func TestWithheldKeysAreAProblem(t *testing.T) {
	for _, vouched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, limiters := longKeys(t, "5/s,50/h", "a")
			l := limiters[0]
			key := l.Key("k")
			bank.lost = "etcd was restored"
			refused := ""
			bank.play(4, sinks, func(int) {
				if err := key.Acquire(t.Context(), 0); err == nil {
					t.Error("a permit was issued")
				} else {
					refused = err.Error()
				}
			})
			said := l.Status().Problem
			if !strings.Contains(said, `key "k", and maybe others: `) || !strings.Contains(said, "etcd was restored") || !strings.Contains(said, "--keys-unused") {
				t.Errorf("the problem is %q", said)
			}
			if _, words, _ := strings.Cut(said, "and maybe others: "); !strings.Contains(refused, words) || l.core.Report(l.core.clock.Now()).Problem != said {
				t.Errorf("the refusal is %q, the problem %q", refused, said)
			}
			if bank.lost = ""; !vouched {
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
			} else {
				bank.play(15, sinks, func(int) { key.TryAcquire() })
			}
			if p := l.Status().Problem; strings.Contains(p, "key") {
				t.Errorf("after that the problem is %q", p)
			}
			bank.play(2, sinks, func(int) { key.TryAcquire() })
			if !key.TryAcquire() {
				t.Error("there is still no permit")
			}
		})
	}
}
