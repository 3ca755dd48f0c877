package simulation_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/simulation"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "replay this history of -kind and -mutant, and print it")
	kindFlag   = flag.String("kind", "Stop", "a kind of histories")
	mutantFlag = flag.String("mutant", "", "the mutant to replay; none if empty")
	moreFlag   = flag.Int("histories", 0, "histories per kind; 0: as many as a test run should take")
	forFlag    = flag.Duration("for", 0, "how long TestForLong runs")
	onlyFlag   = flag.String("only", "", "the one kind that TestForLong runs; all if empty")
)

// TestMain lets the garbage collector rest: a history is small and soon over.
func TestMain(m *testing.M) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(200 << 20)
	os.Exit(m.Run())
}

// replay is how to see one history again.
func replay(kind simulation.Kind, m *simulation.Mutant, seed uint64) string {
	text := fmt.Sprintf("go test ./internal/simulation -run TestReplay -v -kind %v -seed %d", kind, seed)
	if m != nil {
		text += " -mutant " + m.Name
	}
	return text
}

func over(r simulation.Result) bool { return len(r.Over) > 0 }

// overInSum reports whether all permits together are over in some window.
func overInSum(r simulation.Result) bool {
	return slices.ContainsFunc(r.Over, func(v simulation.Violation) bool { return v.Sum() })
}

// shows is how a mutant is noticed.
func shows(m *simulation.Mutant) func(simulation.Result) bool {
	if m.Otherwise {
		return over
	}
	return overInSum
}

func lossy(r simulation.Result) bool { return over(r) || r.Given < r.Asked }

// badOf is what must not be in a kind's histories.
func badOf(kind simulation.Kind) func(simulation.Result) bool {
	if kind == simulation.Calm {
		return lossy
	}
	return over
}

// TestReplay prints the history of -seed.
func TestReplay(t *testing.T) {
	kind := simulation.Stop
	for _, k := range simulation.Kinds() {
		if k.String() == *kindFlag {
			kind = k
		}
	}
	var m *simulation.Mutant
	bad := badOf(kind)
	for _, c := range simulation.Mutants() {
		if c.Name == *mutantFlag {
			m, kind, bad = &c, c.Kind, shows(&c)
		}
	}
	text, r := simulation.Print(kind, m, *seedFlag, bad)
	t.Logf("kind %v, seed %d\n%s", kind, *seedFlag, text)
	if m == nil && r.Judged && bad(r) {
		t.Errorf("%d windows over, %d short", len(r.Over), len(r.Short))
	}
}

// totals add results up.
type totals struct {
	sync.Mutex
	histories, judged, windows int
	permits, asked, given      int64
	held                       float64
	stats                      simulation.Stats
}

func (s *totals) add(r *simulation.Result) {
	s.Lock()
	defer s.Unlock()
	s.histories++
	if r.Judged {
		s.judged++
	}
	s.windows += r.Windows
	s.permits, s.asked, s.given = s.permits+r.Permits, s.asked+r.Asked, s.given+r.Given
	s.held = max(s.held, r.Held)
	s.stats.Add(&r.Stats)
}

func (s *totals) utilisation() float64 { return 100 * float64(s.given) / float64(max(1, s.asked)) }

func (s *totals) String() string {
	text := fmt.Sprintf("%d histories, %d judged, %d windows, %d permits; %.1f%% of the totals issued",
		s.histories, s.judged, s.windows, s.permits, s.utilisation())
	if s.held > 0 {
		text += fmt.Sprintf("; with what was held, at most %.2f times the total", s.held)
	}
	return text
}

// faults tells what was done to the histories.
func (s *totals) faults() string {
	var parts []string
	for i := range len(s.stats.Events) {
		if name, n := s.stats.Action(i); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(parts, ", ") + fmt.Sprintf("; hosts %d, registered anew %d, watches found compacted %d, opened anew for lagging %d, silences doubted %d, views unlike %d, stores gone back %d",
		s.stats.Hosts, s.stats.Anew, s.stats.Compacted, s.stats.Rewatched, s.stats.Doubts, s.stats.Unlike, s.stats.Backwards)
}

// search runs the histories of the seeds from first to last on all processors
// until bad says so, and returns the seed of a bad one, 0 if there is none.
func search(kind simulation.Kind, m *simulation.Mutant, first, last uint64, sum *totals, bad func(simulation.Result) bool) uint64 {
	var next, found atomic.Uint64
	next.Store(first - 1)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := next.Add(1); seed <= last && found.Load() == 0; seed = next.Add(1) {
				r := simulation.Run(kind, m, seed)
				sum.add(&r)
				if r.Judged && bad(r) {
					found.CompareAndSwap(0, seed)
				}
			}
		})
	}
	wg.Wait()
	return found.Load()
}

// perKind is how many histories a test run makes of each kind. With those that
// the mutants take they are 100,000 and more.
var perKind = map[simulation.Kind]uint64{
	simulation.Stop: 25_000, simulation.Timing: 10_000, simulation.Restore: 8_000, simulation.Hold: 8_000,
	simulation.Split: 4_000, simulation.Switch: 4_000, simulation.Measured: 4_000, simulation.Calm: 600,
}

// TestNoWindowIsOver is the promise, kind by kind: no window is over, and in
// calm histories every permit of every window is issued, whoever joins, leaves
// or sets limits.
func TestNoWindowIsOver(t *testing.T) {
	for _, kind := range simulation.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			n := perKind[kind]
			if simulation.Slow {
				n /= 60
			}
			if *moreFlag > 0 {
				n = uint64(*moreFlag)
			}
			var sum totals
			if seed := search(kind, nil, 1, n, &sum, badOf(kind)); seed != 0 {
				text, _ := simulation.Print(kind, nil, seed, badOf(kind))
				t.Fatalf("%s\nreplay: %s", text, replay(kind, nil, seed))
			}
			if sum.judged < sum.histories/8 || sum.permits == 0 || sum.asked == 0 {
				t.Errorf("only %d of %d histories say anything, %d permits", sum.judged, sum.histories, sum.permits)
			}
			t.Logf("%v\n%s", &sum, sum.faults())
		})
	}
}

// TestMutantsAreCaught: each safeguard, switched off, must lead to a window
// whose sum is over the total. A checker that misses one is blind on that side.
func TestMutantsAreCaught(t *testing.T) {
	for _, m := range simulation.Mutants() {
		if simulation.Slow && m.Rare {
			continue // a minute's work there, and no other code
		}
		t.Run(m.Name, func(t *testing.T) {
			var sum totals
			seed := search(m.Kind, &m, 1, 200_000, &sum, shows(&m))
			if seed == 0 {
				t.Fatalf("not caught in %d histories (%d judged)", sum.histories, sum.judged)
			}
			t.Logf("caught after %d histories, seed %d: %s", sum.histories, seed, replay(m.Kind, &m, seed))
		})
	}
}

// TestForLong runs fresh histories of all kinds for -for, and says how many.
func TestForLong(t *testing.T) {
	if *forFlag == 0 {
		t.Log("runs with -for; see make simulate")
		return
	}
	began := time.Now()
	first := uint64(began.UnixNano()) // seeds that no run had before
	var all totals
	over, told := 0, began
	for round := uint64(0); time.Since(began) < *forFlag; round++ {
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%v: %d histories, %d violations", time.Since(began).Round(time.Second), all.histories, over)
		}
		for kind, n := range perKind {
			if *onlyFlag != "" && kind.String() != *onlyFlag {
				continue
			}
			n /= 100
			if seed := search(kind, nil, first+round*n, first+(round+1)*n-1, &all, badOf(kind)); seed != 0 {
				over++
				text, _ := simulation.Print(kind, nil, seed, badOf(kind))
				t.Errorf("%s\nreplay: %s", text, replay(kind, nil, seed))
			}
		}
	}
	took := time.Since(began)
	t.Logf("%v: %v\n%d violations; %.0f histories a second on %d processors\n%s", took.Round(time.Second), &all, over,
		float64(all.histories)/took.Seconds(), runtime.GOMAXPROCS(0), all.faults())
}
