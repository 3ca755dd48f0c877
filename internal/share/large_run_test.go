package share_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// largeWindow is the one window length.
const largeWindow = time.Second

// Window is what a fleet issued for one window, and what it may have.
type Window struct {
	Index         int   // from the history's beginning
	Issued, Bound int64 // Bound is the smallest total that the proof names
}

// Result is what came out.
type Result struct {
	Instances, Revisions int
	Windows              []Window
	Over                 []Window
	// Storm is the time from the last join of the storm until a window begins of
	// which everything is issued; Raised the same since the total was raised; -1 if
	// there is none.
	Storm, Raised time.Duration
	// Lost is the part of all totals that was not issued while a tenth of the
	// fleet crashed, a tenth left and both were replaced.
	Lost float64
}

// String tells the result in a line.
func (r *Result) String() string {
	return fmt.Sprintf("%d instances, %d revisions, %d windows, %d over; all is issued %v after the last of the joins and %v after a larger total; %.2f%% lost while a tenth crashed and a tenth was replaced",
		r.Instances, r.Revisions, len(r.Windows), len(r.Over), r.Storm, r.Raised, 100*r.Lost)
}

// runLarge plays the history of a seed for a fleet of n.
func runLarge(n int, seed uint64) *Result {
	s := newStory(n, rand.New(rand.NewPCG(seed, 0)))
	windows := int(end/sec) - 1 // the last one that every clock has seen all of
	sums := make([]int64, windows)
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			issued := make([]int64, windows)
			for i := int(next.Add(1)) - 1; i < len(s.actors); i = int(next.Add(1)) - 1 {
				l := life{story: s, actor: &s.actors[i], r: rand.New(rand.NewPCG(seed, uint64(i)+1))}
				l.play(issued)
			}
			mu.Lock()
			defer mu.Unlock()
			for w, n := range issued {
				sums[w] += n
			}
		})
	}
	workers.Wait()
	return s.judge(n, sums)
}

// judge compares every window with the smallest total in [B-, B+], or rather at the
// ends of the runs from there: the larger total counts at once, after the lower one.
func (s *story) judge(n int, sums []int64) *Result {
	r := &Result{Instances: n, Revisions: len(s.commits), Storm: -1, Raised: -1}
	settle, freshness := int64(quota.DefaultSettle), int64(quota.DefaultFreshness)
	asked, given := int64(0), int64(0)
	for w, sum := range sums {
		start := int64(w) * sec
		from := start + clockError - (settle-sec/protocol.DriftBound)*protocol.DriftBound/(protocol.DriftBound+1)
		to := start - clockError - freshness*protocol.DriftBound/(protocol.DriftBound-1)
		run := func(from int64) int64 {
			if last := start + sec + clockError; from >= lowered && last > raised {
				return s.total(max(from, raised))
			}
			return s.total(max(0, from))
		}
		// Totals change at most once between them.
		x := Window{w, sum, min(run(from), run(to))}
		r.Windows = append(r.Windows, x)
		if x.Issued > x.Bound {
			r.Over = append(r.Over, x)
		}
		if x.Issued == x.Bound && r.Storm < 0 && start >= stormEnds {
			r.Storm = time.Duration(start - stormEnds)
		}
		if x.Issued == x.Bound && r.Raised < 0 && start >= raised && x.Bound == s.total(raised) {
			r.Raised = time.Duration(start - raised)
		}
		if start >= deploy {
			asked, given = asked+x.Bound, given+x.Issued
		}
	}
	r.Lost = 1 - float64(given)/float64(max(1, asked))
	return r
}
