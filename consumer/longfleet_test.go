package consumer

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// slowBank is a treasury that sessions ask, each for itself, and that answers after a time.
type slowBank struct {
	treasury
	answers time.Duration
	mu      sync.Mutex            // guards the treasury, and backs; no session asks its limiter while it is held
	backs   map[*stub][]time.Time // when an instance has given permits back
}

// session plays an instance's session until end is called: it asks when its limiter wants something, and looks when that
// says so. So it sleeps if that says that it need not look.
func (b *slowBank) session(s *stub) (end func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		proof, look := time.NewTicker(time.Second), time.NewTimer(time.Second)
		defer proof.Stop()
		for s.prove(); ; s.prove() {
			select {
			case <-done:
				return
			case <-proof.C:
				continue
			case <-s.sink.Wanting():
			case <-look.C:
			}
			b.mu.Lock()
			all, next := s.sink.Uses(10)
			b.mu.Unlock()
			if next > 0 {
				look.Reset(next)
			}
			if len(all) == 0 {
				continue
			}
			time.Sleep(b.answers / 2)
			b.mu.Lock()
			for i := range all {
				b.answer(&all[i], max(1, b.fleet))
				if all[i].Back.N > 0 {
					b.backs[s] = append(b.backs[s], time.Now())
				}
			}
			b.mu.Unlock()
			time.Sleep(b.answers / 2)
			s.sink.Fund(all)
		}
	})
	return func() { close(done); running.Wait() }
}

// LongFleet is a fleet under a policy with long limits, and its etcd.
type LongFleet struct {
	bank     slowBank
	sinks    []*stub
	Limiters []*Limiter
	ends     []func()
}

// NewLongFleet returns a fleet of n instances that have had their shares for some seconds or, if first is set, one
// instance that is the first of its fleet and has none yet. Etcd answers after a time. It is played until End.
func NewLongFleet(t *testing.T, p quota.Policy, n int, first bool, answers time.Duration) *LongFleet {
	t.Helper()
	f := &LongFleet{}
	f.bank.treasury = treasury{totals: map[string][]byte{}, at: map[string]int64{}, fleet: int64(n)}
	f.bank.answers, f.bank.backs = answers, map[*stub][]time.Time{}
	v := protocol.View{Revision: 1, Policy: withDefaults(p), PolicyRevision: 1, First: first}
	for i := range n {
		v.Instances = append(v.Instances, protocol.Instance{ID: fmt.Sprint(i), Name: fmt.Sprint(i), First: first})
	}
	for _, i := range v.Instances {
		s := &stub{clock: clock.New()}
		f.Limiters = append(f.Limiters, open(t, s.source(), Options{}))
		s.sink.Reset(s.clock.Now(), i.ID, v)
		f.sinks = append(f.sinks, s)
	}
	f.bank.told = f.sinks
	for _, s := range f.sinks {
		f.ends = append(f.ends, f.bank.session(s))
	}
	if !first {
		time.Sleep(4 * time.Second)
	}
	synctest.Wait()
	return f
}

// End ends the sessions.
func (f *LongFleet) End() {
	for _, end := range f.ends {
		end()
	}
}

// GaveBack reports whether another instance than i gave permits back to etcd in a time.
func (f *LongFleet) GaveBack(i int, from, to time.Time) bool {
	f.bank.mu.Lock()
	defer f.bank.mu.Unlock()
	for s, all := range f.bank.backs {
		for _, at := range all {
			if s != f.sinks[i] && !at.Before(from) && !at.After(to) {
				return true
			}
		}
	}
	return false
}
