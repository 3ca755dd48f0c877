package shipped

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	forFlag  = flag.Duration("for", 0, "how long TestForLong plays fresh histories")
	seedFlag = flag.Uint64("seed", 1, "the seed of TestReplay")
	kindFlag = flag.String("kind", string(faults), "the kind of TestReplay")
	moreFlag = flag.Uint64("more", 0, "how many histories of each kind TestNoWindowIsOver plays")
)

// TestMain lets the garbage collector rest: a history is small and soon over.
func TestMain(m *testing.M) {
	valCtxCh = nil
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(200 << 20)
	os.Exit(m.Run())
}

// history plays the history of a seed, in a bubble, on one processor: what happens at
// one instant then hardly differs from run to run.
func history(t *testing.T, k kind, seed uint64, keep bool, more ...drama) (w *world, wrong []string) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed) // of keys, and so of IDs, and of pauses
	synctest.Test(t, func(t *testing.T) {
		w = play(t, newPlan(k, seed, more...), keep)
		wrong = w.judge()
	})
	return w, wrong
}

// pass lets a bubble's time pass.
func pass(d time.Duration) { time.Sleep(d) }

func replay(k kind, seed uint64) string {
	return fmt.Sprintf("go test ./internal/shipped -run TestReplay -v -kind %s -seed %d", k, seed)
}

// TestReplay prints the history of -seed.
func TestReplay(t *testing.T) {
	w, wrong := history(t, kind(*kindFlag), *seedFlag, testing.Verbose(), leads()...)
	t.Logf("%s\n%+v\ntrace %x", strings.Join(w.lines, "\n"), w.stats, w.sum)
	for _, x := range wrong {
		t.Error(x)
	}
}

// perKind is how many histories of each kind a test run plays.
const perKind = 40

// TestForLong plays fresh histories of all kinds for -for, and says how many. It plays
// every tenth twice, and says how many of these went the same way to the nanosecond.
func TestForLong(t *testing.T) {
	if *forFlag == 0 {
		t.Log("runs with -for")
		return
	}
	began, n, sum, twice, same := time.Now(), uint64(0), stats{}, 0, 0
	first := uint64(began.UnixNano()) // seeds that no run had before
	for ; time.Since(began) < *forFlag; n++ {
		k := kinds[n%uint64(len(kinds))]
		w, wrong := history(t, k, first+n, false)
		if sum.add(&w.stats); len(wrong) > 0 {
			t.Errorf("%s\nreplay: %s", strings.Join(wrong, "\n"), replay(k, first+n))
		}
		if n%10 == 0 {
			twice++
			if again, _ := history(t, k, first+n, false); again.sum == w.sum {
				same++
			}
		}
	}
	t.Logf("%d histories, %.1f a second; %d of %d repeat exactly: %+v", n, float64(int(n)+twice)/time.Since(began).Seconds(), same, twice, sum)
	tellReached(t, true)
}

// TestNoWindowIsOver is the promise, on the code that ships.
func TestNoWindowIsOver(t *testing.T) {
	n := uint64(perKind)
	if *moreFlag > 0 {
		n = *moreFlag
	}
	for _, k := range kinds {
		began, sum := time.Now(), stats{}
		for seed := uint64(1); seed <= n; seed++ {
			w, wrong := history(t, k, seed, false)
			if len(wrong) > 0 {
				t.Fatalf("%s\nreplay: %s", strings.Join(wrong, "\n"), replay(k, seed))
			}
			sum.add(&w.stats)
		}
		t.Logf("%s: %d histories, %.1f a second: %+v", k, n, float64(n)/time.Since(began).Seconds(), sum)
	}
	tellReached(t, false)
}

func (s *stats) add(o *stats) {
	s.windows, s.judged, s.permits, s.whole, s.callers = s.windows+o.windows, s.judged+o.judged, s.permits+o.permits, s.whole+o.whole, s.callers+o.callers
	for i := range s.events {
		s.events[i] += o.events[i]
	}
}
