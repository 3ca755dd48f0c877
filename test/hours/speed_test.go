//go:build load

package hours_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// runners are instances whose callers do not wait. They count what they get by themselves,
// by the second.
type runners struct {
	*network
	t        *testing.T
	client   *clientv3.Client
	admin    *admin.Client
	limiters []*consumer.Limiter
	lines    []*line
	ctx      context.Context

	mu  sync.Mutex
	got map[int64]int64
	all int64
}

// inRun runs f with n instances under the limits, at the start of two minutes.
func inRun(t *testing.T, n int, limits string, f func(r *runners)) {
	t.Helper()
	inBubble(t, func(t *testing.T, net *network) {
		r := &runners{network: net, t: t, client: net.connect(t), got: map[int64]int64{}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.ctx = ctx
		var err error
		if r.admin, err = admin.New(r.client, admin.Options{Prefix: prefix, Author: "test"}); err != nil {
			t.Fatal(err)
		}
		all, err := quota.ParseLimits(limits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.admin.Put(ctx, provider, quota.Policy{Limits: all}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			line := newLine(net)
			r.lines = append(r.lines, line)
			s, err := coordinator.Join(ctx, r.connectBy(t, line.dial), coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("r%d", i), Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				line.open()
				_ = s.Close()
			}()
			pass(time.Millisecond)
			l, err := consumer.Open(ctx, s, provider, consumer.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			r.limiters = append(r.limiters, l)
		}
		pass(time.Until(time.Now().Truncate(2 * time.Minute).Add(2 * time.Minute)))
		f(r)
	})
}

// run has each instance ask for n permits every so often, for d, and returns what all got
// in each second.
func (r *runners) run(d, every time.Duration, n int64) (seconds []int64) {
	r.mu.Lock()
	clear(r.got)
	r.mu.Unlock()
	began := time.Now()
	var running sync.WaitGroup
	for i, l := range r.limiters {
		running.Go(func() {
			pass(time.Duration(i) * 100 * time.Microsecond)
			for time.Since(began) < d {
				got := l.TryTake(n).N()
				r.mu.Lock()
				r.got[time.Now().Unix()] += got
				r.all += got
				r.mu.Unlock()
				pass(every)
			}
		})
	}
	running.Wait()
	for s := range int64(d / time.Second) {
		seconds = append(seconds, r.got[began.Unix()+s])
	}
	return seconds
}

// transactions returns a count of the takings by second. A total in etcd says nothing of who took.
func (r *runners) transactions() (stop func() map[int64]int) {
	ctx, cancel := context.WithCancel(r.ctx)
	k, err := keys.New(prefix)
	if err != nil {
		r.t.Fatal(err)
	}
	count, done := map[int64]int{}, make(chan struct{})
	watch := r.client.Watch(ctx, k.Budgets(provider), clientv3.WithPrefix())
	go func() {
		defer close(done)
		last := int64(0)
		for w := range watch {
			for _, e := range w.Events {
				if e.Kv.ModRevision != last && string(e.Kv.Key) != k.BudgetMark(provider) { // one takes of several limits
					last = e.Kv.ModRevision
					count[time.Now().Unix()]++
				}
			}
		}
	}()
	return func() map[int64]int { cancel(); <-done; return count }
}

// mostTaken returns how often the instances took in a second, at most: no oftener than ten times each.
func (r *runners) mostTaken(count map[int64]int) (most int) {
	r.t.Helper()
	for _, n := range count {
		most = max(most, n)
	}
	if instances := len(r.limiters); most < 1 || most > 10*instances {
		r.t.Errorf("%d instances took %d times in a second, want 1 to %d", instances, most, 10*instances)
	}
	return most
}

// An hour's limit alone bounds nobody's speed: 20 calls a second that do not wait get all
// of it in six seconds, at the start and after a silence.
func TestALongLimitAloneHasNoSpeed(t *testing.T) {
	inRun(t, 1, "100/h", func(r *runners) {
		count := r.transactions()
		first := r.run(6*time.Second, 50*time.Millisecond, 1)
		if r.all != 100 {
			t.Errorf("%d of 100 in six seconds: %v", r.all, first)
		}
		pass(2 * time.Second)
		t.Log(first, r.mostTaken(count()))
	})
	inRun(t, 2, "100000/h", func(r *runners) { // no short limit bounds what callers want
		count := r.transactions()
		r.run(4*time.Second, 5*time.Millisecond, 1<<40)
		t.Log(r.mostTaken(count()))
	})
	inRun(t, 1, "1000/h", func(r *runners) {
		before := r.run(6*time.Second, 50*time.Millisecond, 1)
		count := r.transactions()
		pass(20 * time.Second) // the first seconds of it give back
		given := len(count())
		count = r.transactions()
		pass(time.Minute)
		rest := count()
		after := r.run(6*time.Second, 50*time.Millisecond, 1)
		for _, seconds := range [][]int64{before, after} {
			if seconds[0] < 15 || sum(seconds[1:]) < 97 {
				t.Errorf("of 20 calls a second %v are served", seconds)
			}
		}
		if given > 2 || len(rest) > 0 {
			t.Errorf("%d seconds with a transaction after the calls, %d at rest", given, len(rest))
		}
		t.Log(before, after)
	})
}

// Greedy callers use the short limit in every whole second, as long as the long limit has
// permits for the next one too: at the start, and after a silence. The last second's permits are in hands by then,
// perhaps of an instance that has spent its share of that second: it has them in the next one.
func TestALongLimitCostsNoSpeed(t *testing.T) {
	for _, c := range []struct {
		limits      string
		n           int
		short, long int64
		least       float64
	}{{"1000/s,20000/h", 2, 1000, 20000, 0.95}, {"100/s,3000/2m", 15, 100, 3000, 0.9}, {"100/s,3000/2m,100000/d", 15, 100, 3000, 0.9}} {
		t.Run(c.limits, func(t *testing.T) {
			inRun(t, c.n, c.limits, func(r *runners) {
				count := r.transactions()
				half := time.Duration(c.long/c.short/2) * time.Second
				seconds := r.run(half, 10*time.Millisecond, 1<<40)
				silence := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)) // the same window of two minutes
				pass(silence)
				used := r.all
				after := r.run(time.Duration((c.long-used)/c.short)*time.Second+10*time.Second, 10*time.Millisecond, 1<<40)
				for _, run := range [][]int64{seconds, after} {
					for i, n := range run {
						if i > 0 && used+sum(after[:i])+2*c.short <= c.long && float64(n) < c.least*float64(c.short) || n > c.short {
							t.Errorf("%d of %d in second %d of %v", n, c.short, i, run)
						}
					}
				}
				if r.all != c.long {
					t.Errorf("%d of %d were issued", r.all, c.long)
				}
				t.Log(seconds, after, r.mostTaken(count()))
			})
		})
	}
}

// A crash strands one second of an instance's share of the short limit at most; the others
// use all the rest.
func TestACrashStrandsASecond(t *testing.T) {
	inRun(t, 5, "100/s,3000/2m", func(r *runners) {
		r.run(5*time.Second+430*time.Millisecond, 10*time.Millisecond, 1<<40)
		for range 2 {
			r.lines[0].hold() // it ends without a word
			r.lines, r.limiters = r.lines[1:], r.limiters[1:]
			r.run(5*time.Second+610*time.Millisecond, 10*time.Millisecond, 1<<40)
		}
		r.run(40*time.Second, 10*time.Millisecond, 1<<40)
		if lost := 3000 - r.all; lost < 0 || lost > 100/5+100/4 { // none if both had nothing in hand
			t.Errorf("two crashes stranded %d permits, want 0 to %d", lost, 100/5+100/4)
		} else {
			t.Logf("two crashes stranded %d permits", lost)
		}
	})
}

// A long limit alone bounds no single request but by itself, and gives each instance a
// share, however many there are.
func TestALongLimitAloneBoundsNoRequest(t *testing.T) {
	inRun(t, 10, "1000/d", func(r *runners) {
		if _, err := r.limiters[3].Take(r.ctx, 101, 5*time.Second); err != nil {
			t.Error(err)
		}
		if _, err := r.limiters[3].Take(r.ctx, 900, 5*time.Second); !errors.Is(err, consumer.ErrLimited) {
			t.Errorf("900 of 899: %v", err)
		}
		pass(40 * time.Second) // it gives back what it took meanwhile
		if _, err := r.limiters[4].Take(r.ctx, 899, 5*time.Second); err != nil {
			t.Error(err)
		}
	})
	inRun(t, 20, "10/d", func(r *runners) {
		served := 0
		for i, l := range r.limiters {
			if d := l.Delay(1); d > time.Second { // it takes some once it is asked
				t.Errorf("instance %d has no share for %v", i, d)
			}
			if l.Acquire(r.ctx, time.Second) == nil {
				served++
			}
		}
		if served != 10 {
			t.Errorf("%d of 10 were issued", served)
		}
	})
}
