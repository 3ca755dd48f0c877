package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// provider is a fleet in simulated time, and what arrives at its provider.
type provider struct {
	buckets map[int64]int64 // by 10 ms
	delays  []int64
	issued  int64
}

const bin = 10 * time.Millisecond

// paced drives one gate through a number of seconds: callers that come as p says
// and wait as long as it takes, in steps of a millisecond. What happens in the
// first seconds, warm, is not counted.
func (v *provider) paced(f *fixed, p *load.Process, mean float64, warm, seconds int64) {
	var now int64
	came := map[*queue.Waiter]int64{}
	count := func(n, since int64) {
		if now >= warm*int64(time.Second) {
			v.buckets[now/int64(bin)] += n
			v.issued += n
			v.delays = append(v.delays, now-since)
		}
	}
	g := gateOf(f, 0, func(w *queue.Waiter, _ queue.Grant, d queue.Verdict) {
		if d == queue.Granted {
			count(w.N(), came[w])
		}
		delete(came, w)
	})
	g.Changed(clock.Instant{})
	for second := range seconds {
		p.Begin(second, mean, 0)
		due := int64(0)
		for step := range int64(1000) {
			now = second*int64(time.Second) + step*int64(time.Millisecond)
			at := clock.Instant{Mono: now, Wall: now}
			if g.Wake() <= now {
				g.Tick(at)
			}
			for n := p.Due(float64(step) / 1000); due < n; due++ {
				w := &queue.Waiter{}
				came[w] = now
				if len(came) > 4*int(f.shares[time.Second])+1000 {
					delete(came, w) // a bounded queue: who comes on top goes away
					continue
				}
				if _, d := g.Enter(at, w, 1, clock.Forever, queue.Default); d == queue.Granted {
					count(1, now)
					delete(came, w)
				}
			}
		}
	}
}

// peakToMean is the largest bucket against the mean, and the delays.
func (v *provider) peakToMean(from, to int64) (ratio float64, p50, p99 time.Duration) {
	peak, sum := int64(0), int64(0)
	for b := from * 100; b < to*100; b++ {
		peak, sum = max(peak, v.buckets[b]), sum+v.buckets[b]
	}
	slices.Sort(v.delays)
	at := func(q float64) time.Duration {
		return time.Duration(v.delays[int(q*float64(len(v.delays)-1))]).Round(time.Millisecond)
	}
	return float64(peak) * float64((to-from)*100) / float64(sum), at(0.5), at(0.99)
}

func fleetOf(n int, pacing shape.Pacing, arrival load.Arrival, part float64, share int64) (v *provider, mean float64) {
	v = &provider{buckets: map[int64]int64{}}
	r := rand.New(rand.NewPCG(7, 7))
	mean = part * float64(share)
	for i := range n {
		pacing.Phase = r.Uint64()
		f := newFixed(map[time.Duration]int64{time.Second: share})
		f.plan.Pacing = pacing
		v.paced(f, load.NewProcess(arrival, 11, i, n), mean, warmFor, runFor)
	}
	return v, mean
}

const (
	warmFor = 16 // seconds: a whole turn of the sine
	runFor  = 32
)

// TestPacingFlattens is the table of docs/proof/bench.md: how flat the rate is that
// arrives at the provider, and what it costs in delay, for 96 instances with a
// share of 500 a second each.
func TestPacingFlattens(t *testing.T) {
	if testing.Short() {
		t.Skip("drives 96 instances through 48 seconds, eight times")
	}
	t.Parallel()
	even := shape.Pacing{Even: true}
	for _, c := range []struct {
		arrival load.Arrival
		part    float64 // of the limit
		pacing  shape.Pacing
		most    float64 // peak to mean
		whole   bool    // nothing may be lost
	}{
		{load.Steady, 1.5, shape.Pacing{}, math.Inf(1), true},
		{load.Steady, 1.5, even, 1.2, true},
		{load.Burst, 0.5, shape.Pacing{}, math.Inf(1), false},
		{load.Burst, 0.5, even, 20, false},
		{load.Sine, 0.5, shape.Pacing{}, math.Inf(1), false},
		{load.Sine, 0.5, even, math.Inf(1), false},
		{load.Poisson, 0.5, shape.Pacing{}, math.Inf(1), false},
		{load.Poisson, 0.5, even, math.Inf(1), false},
	} {
		const instances, share = 96, 500
		name := "off"
		if c.pacing.Even {
			name = "even"
		}
		t.Run(fmt.Sprintf("%s-%g-%s", c.arrival, c.part, name), func(t *testing.T) {
			t.Parallel()
			v, _ := fleetOf(instances, c.pacing, c.arrival, c.part, share)
			ratio, p50, p99 := v.peakToMean(warmFor, runFor)
			used := float64(v.issued) / (instances * share * (runFor - warmFor))
			t.Logf("peak to mean %.2f, delay p50 %v p99 %v, used %.3f of the limit", ratio, p50, p99, used)
			if ratio > c.most {
				t.Errorf("peak to mean is %.2f, more than %v", ratio, c.most)
			}
			if c.whole && used < 0.995 {
				t.Errorf("only %.4f of the limit was used", used)
			}
			if !c.whole && used < 0.97*c.part {
				t.Errorf("%.4f of the limit was used, and %v asked for", used, c.part)
			}
			// Calls that come evenly enough are held back for no longer than that takes.
			if c.arrival == load.Poisson && p50 > 200*time.Millisecond {
				t.Errorf("p50 of the delay is %v, where there is hardly anything to even out", p50)
			}
		})
	}
}
