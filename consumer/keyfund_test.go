package consumer

import (
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
	writes int
}

// serve answers all that the sinks want, until they want nothing more.
func (b *treasury) serve(all ...*stub) (uses int) {
	for _, s := range all {
		for {
			some, _ := s.sink.KeyUses(10)
			if uses += len(some); len(some) == 0 {
				break
			}
			for i := range some {
				b.answer(&some[i], int64(len(all)))
			}
			s.sink.FundKeys(some)
			if b.away {
				break
			}
		}
	}
	return uses
}

func (b *treasury) answer(u *escrow.KeyUse, instances int64) {
	if u.Away = b.away; u.Away {
		return
	}
	key := fmt.Sprint(u.Key, u.Start)
	u.Purse.Read(b.totals[key], b.at[key], 7)
	rule := escrow.Rule{Limit: u.Permits, Instances: instances, Share: u.Share}
	if next, n, ok := u.Purse.Next(rule, u.Use, u.Back, 7); ok {
		text, err := escrow.Encode(next)
		if err != nil {
			panic(err)
		}
		b.writes++
		b.totals[key], b.at[key] = []byte(text), b.at[key]+1
		u.Purse.Committed(next, n, b.at[key], 7)
	}
	u.Left, u.Withheld = u.Purse.Left(rule), u.Purse.Withheld()
}

// longKeys returns limiters of instances that share limits by key, at the start of an hour.
func longKeys(t *testing.T, limits string, ids ...string) (*treasury, []*stub, []*Limiter) {
	t.Helper()
	p := policyOf(t, "1000000/s")
	parsed, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	p.Keys.Limits = parsed
	v := protocol.View{Revision: 1, Policy: withDefaults(p), PolicyRevision: 1}
	for _, id := range ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: id, Name: id, Weight: 1})
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 4*time.Second)))
	var sinks []*stub
	var limiters []*Limiter
	for _, id := range ids {
		s := &stub{clock: clock.New()}
		limiters = append(limiters, open(t, s.source(), Options{}))
		s.sink.Reset(s.clock.Now(), s.clock.Mono(), id, v)
		sinks = append(sinks, s)
	}
	time.Sleep(4 * time.Second)
	for _, s := range sinks {
		s.prove()
	}
	return &treasury{totals: map[string][]byte{}, at: map[string]int64{}}, sinks, limiters
}

// All instances together issue exactly a key's limit of an hour, wherever its calls come from,
// and in the next hour again. A key that nobody calls costs nothing.
func TestKeysOfALongLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "40/s,100/h", "a", "b", "c")
		for hour := range 2 {
			issued := 0
			for second := range 60 {
				for _, s := range sinks {
					s.prove()
				}
				for i, l := range all {
					for range 3 + i {
						if l.Key("x").TryAcquire() {
							issued++
						}
					}
				}
				bank.serve(sinks...)
				time.Sleep(time.Second)
				if second == 30 {
					all[0].Key("y").TryAcquire()
				}
			}
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

// A caller that waits is served when etcd has answered, and is told at once if the window has
// nothing left for it.
func TestAWaiterOfALongKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "10/h", "a", "b")
		key := all[0].Key("x")
		served := make(chan error)
		for range 2 {
			go func() { served <- key.Acquire(t.Context(), time.Second) }()
		}
		synctest.Wait()
		select {
		case <-sinks[0].sink.Wanting():
		default:
			t.Error("callers wait, and nobody is told")
		}
		bank.serve(sinks...)
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		for range 8 {
			go func() { served <- key.Acquire(t.Context(), time.Second) }()
		}
		synctest.Wait()
		bank.serve(sinks...)
		for range 8 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		bank.serve(sinks...)
		began := time.Now()
		err := key.Acquire(t.Context(), 30*time.Minute)
		var limited LimitError
		if !errors.As(err, &limited) || limited.Key != "x" || limited.Total != 10 || limited.Share != 10 || limited.Remaining != 0 || limited.Taking || time.Since(began) != 0 {
			t.Fatalf("%v after %v, want a refusal at once", err, time.Since(began))
		}
		if next := time.Now().Truncate(time.Hour).Add(time.Hour); !limited.RetryAt.Equal(next) || !strings.Contains(err.Error(), "has taken 10 of 10 permits per 1h0m0s; none left") {
			t.Errorf("%v", err)
		}
		use := key.Limits()
		if len(use) < 1 || use[len(use)-1].Limit != (quota.Limit{Permits: 10, Window: time.Hour}) || use[len(use)-1].Used != 10 || use[len(use)-1].Remaining != 0 {
			t.Errorf("%+v", use)
		}
		if err := key.limiter.acquireKey(t, "x", 11); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want that 11 are too many", err)
		}
	})
}

func (l *Limiter) acquireKey(t *testing.T, name string, n int64) error {
	_, err := l.Key(name).Take(t.Context(), n, time.Second)
	return err
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
		err := key.Acquire(t.Context(), 0)
		if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "etcd cannot be reached") {
			t.Errorf("%v, want the cause", err)
		}
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
		if n := all[0].Key("x").TryTake(1).N(); n != 1 {
			t.Fatalf("%d permits, want 1", n)
		}
		for range 3 * 64 {
			time.Sleep(300 * time.Millisecond)
			bank.serve(sinks...)
		}
		issued := int64(1)
		for range 20 {
			for _, s := range sinks {
				s.prove()
			}
			issued += all[1].Key("x").TryTake(1).N()
			bank.serve(sinks...)
		}
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
