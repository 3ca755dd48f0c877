package simulation_test

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotient-limiter/quotient/internal/simulation"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay this history of -kind and -fault, and print it")
	kindFlag  = flag.Int("kind", 0, "0 Stop, 1 Timing, 2 Hold, 3 Calm")
	faultFlag = flag.Int("fault", 0, "the rule to break")
	moreFlag  = flag.Int("histories", 0, "histories per kind; 0: as many as a test run should take")
)

// replay is how to see one history again.
func replay(kind simulation.Kind, fault simulation.Fault, seed uint64) string {
	return fmt.Sprintf("go test ./internal/simulation -run TestReplay -v -kind %d -fault %d -seed %d", kind, fault, seed)
}

// TestReplay prints the history of -seed.
func TestReplay(t *testing.T) {
	kind, fault := simulation.Kind(*kindFlag), simulation.Fault(*faultFlag)
	text, r := simulation.Print(kind, fault, *seedFlag)
	t.Logf("kind %v, fault %v, seed %d\n%s", kind, fault, *seedFlag, text)
	if fault == simulation.None && r.Judged && len(r.Over) > 0 {
		t.Errorf("%d windows over", len(r.Over))
	}
}

// totals add results up.
type totals struct {
	sync.Mutex
	histories, judged, windows int
	permits, asked, given      int64
}

// search runs histories on all processors until bad says so, and returns the
// seed of a bad one, 0 if there is none in n.
func search(kind simulation.Kind, fault simulation.Fault, n int, sum *totals, bad func(simulation.Result) bool) uint64 {
	var next, found atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := next.Add(1); seed <= uint64(n) && found.Load() == 0; seed = next.Add(1) {
				r := simulation.Run(kind, fault, seed)
				sum.Lock()
				sum.histories++
				if r.Judged {
					sum.judged++
				}
				sum.windows += r.Windows
				sum.permits, sum.asked, sum.given = sum.permits+r.Permits, sum.asked+r.Asked, sum.given+r.Given
				sum.Unlock()
				if r.Judged && bad(r) {
					found.CompareAndSwap(0, seed)
				}
			}
		})
	}
	wg.Wait()
	return found.Load()
}

// TestNoWindowIsOver is the promise, kind by kind.
func TestNoWindowIsOver(t *testing.T) {
	for kind, n := range map[simulation.Kind]int{simulation.Stop: 60_000, simulation.Timing: 30_000, simulation.Hold: 20_000} {
		t.Run(kind.String(), func(t *testing.T) {
			if simulation.Slow {
				n /= 60
			}
			if *moreFlag > 0 {
				n = *moreFlag
			}
			var sum totals
			if seed := search(kind, simulation.None, n, &sum, func(r simulation.Result) bool { return len(r.Over) > 0 }); seed != 0 {
				text, _ := simulation.Print(kind, simulation.None, seed)
				t.Fatalf("a window is over.\n%s\nreplay: %s", text, replay(kind, simulation.None, seed))
			}
			if sum.judged < sum.histories/4 || sum.permits == 0 {
				t.Errorf("only %d of %d histories say anything, %d permits", sum.judged, sum.histories, sum.permits)
			}
			t.Logf("%d histories, %d judged, %d windows, %d permits, 0 over; %.1f%% of the totals issued",
				sum.histories, sum.judged, sum.windows, sum.permits, 100*float64(sum.given)/float64(max(1, sum.asked)))
		})
	}
}

// TestAnnouncedChangesLoseNothing: instances that ask for all they may get
// issue every permit of every window, whoever joins, leaves or sets limits, if
// that is announced in time.
func TestAnnouncedChangesLoseNothing(t *testing.T) {
	n := 1500
	if simulation.Slow {
		n /= 30
	}
	var sum totals
	bad := func(r simulation.Result) bool { return len(r.Over) > 0 || r.Given < r.Asked }
	if seed := search(simulation.Calm, simulation.None, n, &sum, bad); seed != 0 {
		text, r := simulation.Print(simulation.Calm, simulation.None, seed)
		t.Fatalf("%d of %d permits issued.\n%s\nreplay: %s", r.Given, r.Asked, text, replay(simulation.Calm, simulation.None, seed))
	}
	if sum.asked == 0 {
		t.Error("no window was judged")
	}
	t.Logf("%d histories, %d windows, %d of %d permits issued", sum.histories, sum.windows, sum.given, sum.asked)
}

// TestFaultsAreCaught: each rule, broken, must lead to a window whose sum is
// over the total. A checker that misses one is blind on that side.
func TestFaultsAreCaught(t *testing.T) {
	over := func(r simulation.Result) bool {
		for _, v := range r.Over {
			if v.Actor == "" {
				return true
			}
		}
		return false
	}
	// These need hundreds of histories or more.
	rare := []simulation.Fault{simulation.GapKeepsHistory, simulation.ProofByArrival, simulation.MonoOnly,
		simulation.SleepUnseen, simulation.NewestSettle, simulation.SettleAtOnce, simulation.HoldGrows}
	for _, c := range []struct {
		fault simulation.Fault
		kind  simulation.Kind
	}{
		{simulation.AnchorNow, simulation.Stop},
		{simulation.Coalesce, simulation.Stop},
		{simulation.GapKeepsHistory, simulation.Stop},
		{simulation.SameID, simulation.Stop},
		{simulation.JoinAtOnce, simulation.Stop},
		{simulation.ProofByArrival, simulation.Stop},
		{simulation.ProofWithoutPosition, simulation.Stop},
		{simulation.ProofByAnyAnswer, simulation.Stop},
		{simulation.TimerFlag, simulation.Stop},
		{simulation.MonoOnly, simulation.Stop},
		{simulation.SleepUnseen, simulation.Stop},
		{simulation.OldEvent, simulation.Stop},
		{simulation.TwoWatches, simulation.Stop},
		{simulation.NoProof, simulation.Stop},
		{simulation.SlowClocks, simulation.Stop},
		{simulation.NewestSettle, simulation.Timing},
		{simulation.SettleAtOnce, simulation.Timing},
		{simulation.HoldGrows, simulation.Hold},
	} {
		if simulation.Slow && slices.Contains(rare, c.fault) {
			continue // a minute's work there, and no other code
		}
		t.Run(c.fault.String(), func(t *testing.T) {
			var sum totals
			seed := search(c.kind, c.fault, 200_000, &sum, over)
			if seed == 0 {
				t.Fatalf("not caught in %d histories (%d judged)", sum.histories, sum.judged)
			}
			t.Logf("caught after %d histories, seed %d: %s", sum.histories, seed, replay(c.kind, c.fault, seed))
		})
	}
}
