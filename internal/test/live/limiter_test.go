package live_test

import (
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 6, 60)
	for _, m := range all {
		m.limiter.PauseUntil(time.Now().Add(time.Hour))
	}
	from := quota.WindowAt(200*ms, time.Now().UnixNano()).End()
	for _, m := range all {
		if s := m.limiter.Status().State; s != quota.StateDraining {
			t.Errorf("state %s, want draining", s)
		}
	}
	g.pass(600 * ms)
	if n := g.ledger.since(from); n != 0 {
		t.Errorf("%d permits were issued while all drain", n)
	}
	for _, m := range all[:3] { // the latest call wins, and the past ends it
		m.limiter.PauseUntil(time.Now().Add(-time.Second))
	}
	g.awaitFull(200*ms, 30)
	for _, m := range all[3:] {
		m.limiter.PauseUntil(time.Time{})
	}
	g.awaitFull(200*ms, 60)
	g.end()
}

// A limiter that is opened again in the same session shares the counter: two
// consumers of it get one share together. The last to be closed leaves.
func TestALimiterOpenedTwiceUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	all := g.join(3)
	var again []*member
	for _, m := range all {
		l, err := consumer.Open(t.Context(), g.trace.Wrap(m.session), provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		second := *m
		second.limiter = l
		again = append(again, &second)
		g.load.Go(second.consume)
	}
	g.ready(append(all, again...)...)
	g.awaitFull(200*ms, 60)
	for i, m := range again {
		a, b := m.limiter.Status(), all[i].limiter.Status()
		if a.Incarnation != b.Incarnation || a.Instances != 3 {
			t.Errorf("two limiters of a session are %q and %q, of %d instances", a.Incarnation, b.Incarnation, a.Instances)
		}
	}
	for _, m := range all { // the first goes, the second serves on
		if err := m.limiter.Close(); err != nil {
			t.Error(err)
		}
	}
	g.awaitFull(200*ms, 60)
	if err := again[0].limiter.Close(); err != nil {
		t.Error(err)
	}
	g.await("the closed one is out of the fleet", func() bool { return again[1].limiter.Status().Instances == 2 })
	g.awaitFull(200*ms, 60)
	g.end()
}

// Permits that are returned are issued again, in their window, and none of them
// twice.
func TestReturnUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	all := g.join(4)
	g.ready(all...)
	var used ledger
	used.lengths, used.issued, used.unsure = g.ledger.lengths, map[quota.Window]int64{}, map[quota.Window]int64{}
	var wg sync.WaitGroup
	for _, m := range all {
		m.stop() // its load counts permits that are returned too
		wg.Go(func() { m.takeAndReturn(&used) })
	}
	g.await("ten windows can be judged", func() bool {
		used.mu.Lock()
		defer used.mu.Unlock()
		return len(used.issued) >= 10
	})
	g.stop()
	wg.Wait()
	for w, n := range used.issued {
		if n > 60 {
			t.Errorf("window from %v: %d permits used of 60", time.Unix(0, w.Start()), n)
		}
	}
}

// takeAndReturn takes greedily and gives every third permit back, twice.
func (m *member) takeAndReturn(used *ledger) {
	for i := 0; ; i++ {
		p, err := m.limiter.Take(m.g.ctx, 1, consumer.Forever)
		if err != nil {
			return
		}
		if i%3 != 0 || !p.Release() {
			used.add(p, 0, p.Until().UnixNano())
			continue
		}
		if p.Release() {
			m.g.t.Error("a permit was returned twice")
		}
	}
}
