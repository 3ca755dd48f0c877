package histories

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is about limits in flight, whose calls last, and about long limits that slide. Both count by parts of
// time.

// holds are those of limits in flight: with the shortest, calls of a history's beginning count no more at its end.
var holds = []time.Duration{4 * time.Second, 4 * time.Second, 8 * time.Second}

// slidingWindow is that of long limits that slide, whose parts last 0.61 s.
const slidingWindow = 61 * time.Second

// flightLimits are the limit of the first policy, or of one that follows old.
func (p *plan) flightLimits(r *rand.Rand, old *quota.Policy) []quota.Limit {
	l := quota.Limit{Permits: totals[r.IntN(len(totals))], Window: holds[r.IntN(len(holds))], InFlight: true}
	if old != nil && r.IntN(2) == 0 {
		l.Window = old.Limits[0].Window
	}
	return []quota.Limit{l}
}

// addRestore adds a restore to some histories of limits that count by parts.
func (p *plan) addRestore() {
	r := rand.New(rand.NewPCG(p.seed, 8))
	if (p.kind == inflight || p.kind == sliding) && r.IntN(3) == 0 {
		p.events = append(p.events, event{at: begin + 1000*ms + r.Int64N(last-begin-1500*ms), do: doRestore, n: 1 + r.Int64N(12), d: r.Int64N(400 * ms)})
	}
}

// openCalls are calls that began at once, and how long they were open at the most, in true time. Guarded by world.mu.
type openCalls struct {
	from, to, n int64
}

// call takes permits of a limit in flight and lets calls begin on them, of which most are said to have ended.
func (c *caller) call(n int64, kind int) {
	switch {
	case kind < 2:
		c.begins(c.l.TryTake(math.MaxInt32))
	case kind < 5:
		c.begins(c.l.TryTake(n))
	default:
		if p, err := c.l.Take(context.Background(), n, 0); err == nil {
			c.begins(p)
		}
	}
}

// begins lets calls begin. Nobody says of some that they have ended: the provider ends these when their permit does,
// by the clock of their instance.
func (c *caller) begins(p consumer.Permit) {
	if p.N() == 0 {
		return
	}
	w, at := c.w, c.reader.now()
	calls := &openCalls{at, p.Until().UnixNano() - epoch + w.e, p.N()}
	w.mu.Lock()
	crashed := c.crashed
	if !crashed {
		w.stats.permits += int(calls.n)
		c.f.calls = append(c.f.calls, calls)
	}
	w.mu.Unlock()
	lasts := 1 + c.r.Int64N([]int64{50 * ms, 600 * ms, 600 * ms, 6000 * ms}[c.r.IntN(4)])
	if c.r.IntN(8) == 0 || crashed {
		return
	}
	w.at(w.now()+lasts, func() {
		if !c.running() {
			return
		}
		w.mu.Lock()
		calls.to = min(calls.to, w.now())
		w.mu.Unlock()
		if p.Done(); w.aside("done").IntN(4) == 0 {
			w.at(w.now()+500*ms, p.Done)
		}
	})
}

// survives has all instances crash but one, long after the last fault, where the limit is in flight. The one is given all
// places within one and a half holds after that: those of the others, and those of its own calls that were never ended.
func (w *world) survives() {
	all := slices.DeleteFunc(w.all(), (*instance).gone)
	if w.kind != inflight || len(all) == 0 {
		return
	}
	one := all[w.aside("survivor").IntN(len(all))]
	for _, i := range all {
		if i != one {
			i.crash()
		}
	}
	at := w.now()
	var takes sync.WaitGroup
	for n, l := range one.limiters() {
		f := w.fleets[n]
		if !w.serves(one, f) {
			continue
		}
		limit := f.newest().Policy.Limits[0]
		c := &caller{instance: one, f: f, l: l, r: w.aside("survivor's calls")}
		takes.Go(func() {
			ctx, end := context.WithTimeout(w.t.Context(), 2*limit.Window)
			defer end()
			p, err := l.Take(ctx, limit.Permits, consumer.Forever)
			if after := time.Duration(w.now() - at); err != nil || after > limit.Window*3/2 {
				w.complain("%s of %s: the places of those that crashed are back after %v: %v", one.name, limit, after, err)
			}
			c.begins(p)
			w.mu.Lock()
			w.stats.back++
			w.mu.Unlock()
		})
	}
	takes.Wait()
}

// judgeCalls compares the open calls with the limit, whenever some begin. These began by permits that were taken of
// etcd since their part of time began, and one who takes counts all that are open. So they are at most what some
// policy said that was in force since then.
func (f *fleet) judgeCalls() *violation {
	slices.SortFunc(f.calls, func(a, b *openCalls) int { return int(a.from - b.from) })
	part := int64(slices.Max(holds)) / quota.HoldParts
	for i, c := range f.calls {
		open := int64(0)
		for _, o := range f.calls[:i+1] {
			if o.to > c.from {
				open += o.n
			}
		}
		bound := int64(0)
		for s := max(0, f.newestAt(c.from-part-2*f.e)); s <= f.newestAt(c.from); s++ {
			if p := f.line[s].Policy; p != nil {
				bound = max(bound, p.Limits[0].Permits)
			}
		}
		f.stats.windows++
		f.stats.judged++
		if open == bound {
			f.stats.whole++
		}
		if open > bound {
			return &violation{what: "open at once, at most", window: quota.Window{Length: time.Second, Index: (epoch + c.from) / int64(time.Second)}, from: c.from, issued: open, bound: bound}
		}
	}
	return nil
}

// judgeSlidingBudget compares each window of true time with a long limit that slides, wherever it begins.
func (f *fleet) judgeSlidingBudget() *violation {
	most := int64(0)
	f.policies(func(p *quota.Policy) {
		for _, l := range p.Limits {
			if l.Sliding {
				most = max(most, l.Permits)
			}
		}
	})
	grants := slices.Clone(f.grants)
	slices.SortFunc(grants, func(a, b *grant) int { return int(a.at - b.at) })
	sum, next := int64(0), 0
	for _, g := range grants {
		for ; next < len(grants) && grants[next].at < g.at+int64(slidingWindow); next++ {
			sum += grants[next].permits
		}
		if sum > most {
			return &violation{what: "of a sliding limit, at most", window: quota.WindowAt(slidingWindow, epoch+g.at), from: g.at, issued: sum, bound: most}
		}
		sum -= g.permits
	}
	return nil
}
