package simulation_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/mutant"
	"github.com/quotient-limiter/quotient/internal/simulation"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "replay this history of -kind and -mutant, and print it")
	kindFlag    = flag.String("kind", "Stop", "a kind of histories")
	mutantFlag  = flag.String("mutant", "", "the mutant to replay; none if empty")
	moreFlag    = flag.Int("histories", 0, "histories per kind; 0: as many as a test run should take; in all, for TestForLong: as many as there is time for")
	forFlag     = flag.Duration("for", 0, "how long TestForLong runs")
	onlyFlag    = flag.String("only", "", "the one kind that TestForLong runs; all if empty")
	freshFlag   = flag.Bool("fresh", false, "look for mutants in histories that no run had before")
	patchedFlag = flag.Bool("patched", false, "build the patched mutants of the real code, and see that they are caught")
	insideFlag  = flag.String("inside", "", "the mutant whose patch this test was built with")
	recordFlag  = flag.Bool("record", false, "write the histories that catch mutants to "+recordedFile)
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
	if m == nil && bad(r) {
		t.Errorf("%d windows over, %d short", len(r.Over), len(r.Short))
	}
}

// totals add results up.
type totals struct {
	sync.Mutex
	histories             int
	windows, judged       int // in which permits were issued; of these, judged
	permits, asked, given int64
	held                  float64
	stats                 simulation.Stats
}

func (s *totals) add(r *simulation.Result) {
	s.Lock()
	defer s.Unlock()
	s.histories++
	s.windows, s.judged = s.windows+r.Windows, s.judged+r.Judged
	s.permits, s.asked, s.given = s.permits+r.Permits, s.asked+r.Asked, s.given+r.Given
	s.held = max(s.held, r.Held)
	s.stats.Add(&r.Stats)
}

func (s *totals) utilisation() float64 { return 100 * float64(s.given) / float64(max(1, s.asked)) }

func (s *totals) String() string {
	text := fmt.Sprintf("%d histories, %d windows, %d judged, %d permits; %.1f%% of the totals issued",
		s.histories, s.windows, s.judged, s.permits, s.utilisation())
	if s.held > 0 {
		text += fmt.Sprintf("; with what was held, at most %.2f times the total", s.held)
	}
	return text
}

// worthwhile checks that the histories could have shown something: an empty window
// is never over. It is for seeds that are always the same: of a few fresh ones, as many
// as a busy machine makes in a minute, the part that is issued differs by more than a
// tenth.
func (s *totals) worthwhile(t *testing.T) {
	t.Helper()
	if s.judged < s.windows/2 || s.utilisation() < 50 {
		t.Errorf("%d of %d windows were judged, want half of them; %.1f%% of the totals were issued, want 50%%", s.judged, s.windows, s.utilisation())
	}
}

// faults tells what was done to the histories.
func (s *totals) faults() string {
	var parts []string
	for i := range len(s.stats.Events) {
		if name, n := s.stats.Action(i); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(parts, ", ") + fmt.Sprintf("; hosts %d, registered anew %d, continued in place %d, permits lent %d, of debts %d, held back by others %d, watches found compacted %d, opened anew for lagging %d, silences doubted %d, views unlike %d, stores gone back %d",
		s.stats.Hosts, s.stats.Anew, s.stats.Continued, s.stats.Borrowed, s.stats.Paid, s.stats.HeldBack, s.stats.Compacted, s.stats.Rewatched, s.stats.Doubts, s.stats.Unlike, s.stats.Backwards)
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
				if bad(r) {
					found.CompareAndSwap(0, seed)
				}
			}
		})
	}
	wg.Wait()
	return found.Load()
}

// perKind is how many histories a test run makes of each kind: some ten seconds of
// processor time in all. TestForLong makes as many as there is time for.
var perKind = map[simulation.Kind]uint64{
	simulation.Stop: 1_600, simulation.Timing: 600, simulation.Restore: 800, simulation.Hold: 800,
	simulation.Split: 480, simulation.Switch: 480, simulation.Measured: 480, simulation.Calm: 160,
}

// TestNoWindowIsOver is the promise, kind by kind: no window is over, and in
// calm histories every permit of every window is issued, whoever joins, leaves
// or sets limits.
func TestNoWindowIsOver(t *testing.T) {
	for _, kind := range simulation.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			n := perKind[kind]
			if simulation.Slow {
				n /= 8
			}
			if *moreFlag > 0 {
				n = uint64(*moreFlag)
			}
			var sum totals
			if seed := search(kind, nil, 1, n, &sum, badOf(kind)); seed != 0 {
				text, _ := simulation.Print(kind, nil, seed, badOf(kind))
				t.Fatalf("%s\nreplay: %s", text, replay(kind, nil, seed))
			}
			sum.worthwhile(t)
			t.Logf("%v\n%s", &sum, sum.faults())
		})
	}
}

// mostHistories bounds the search for a history that catches a mutant.
const mostHistories = 200_000

// TestMutantsAreCaught: each safeguard, taken out, must lead to a window whose sum
// is over the total. A checker that misses one is blind on that side. Those that
// are patches of the real code are built with -patched only.
// The recorded history of a mutant is played first. If it shows nothing, since the
// code has changed, others are searched; -record then spares the next run that.
func TestMutantsAreCaught(t *testing.T) {
	known, first := recorded(t), uint64(1)
	if *freshFlag {
		known, first = map[string]uint64{}, uint64(time.Now().UnixNano())
	}
	caught := maps.Clone(known)
	for _, m := range simulation.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			if patches.Find(m.Name) != nil && *insideFlag != m.Name {
				if *patchedFlag && *insideFlag == "" {
					if seed := patched(t, m.Name); seed != 0 {
						caught[m.Name] = seed
					}
				}
				return
			}
			var sum totals
			seed := known[m.Name]
			if seed != 0 {
				seed = search(m.Kind, &m, seed, seed, &sum, shows(&m))
			}
			if seed == 0 {
				seed = search(m.Kind, &m, first, first+mostHistories-1, &sum, shows(&m))
			}
			if seed == 0 {
				t.Fatalf("not caught in %d histories from seed %d on", sum.histories, first)
			}
			caught[m.Name] = seed
			t.Logf("caught after %d histories, seed %d: %s", sum.histories, seed, replay(m.Kind, &m, seed))
		})
	}
	if *recordFlag {
		record(t, caught)
	}
}

// TestPatchesApply: every patch finds the text that it replaces.
func TestPatchesApply(t *testing.T) { patches.Apply(t) }

// patched builds this test with a mutant's patch, runs the same subtest there, and
// returns the seed that caught it, if it tells one.
func patched(t *testing.T, name string) (seed uint64) {
	t.Helper()
	root, err := mutant.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := patches.Find(name).BuildTest(t.Context(), root, t.TempDir(), "./internal/simulation")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-inside", name,
		fmt.Sprintf("-fresh=%v", *freshFlag)).CombinedOutput()
	if err != nil {
		t.Fatalf("not caught: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	if _, text, ok := strings.Cut(string(out), ", seed "); ok {
		_, _ = fmt.Sscan(strings.TrimRight(strings.Fields(text)[0], ":"), &seed)
	}
	return seed
}

// recordedFile has a mutant and the seed of a history that catches it on each line.
const recordedFile = "testdata/mutants.txt"

func recorded(t *testing.T) map[string]uint64 {
	t.Helper()
	b, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	seeds := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		var name string
		var seed uint64
		if _, err := fmt.Sscan(line, &name, &seed); err != nil {
			t.Fatalf("%s: %q: %v", recordedFile, line, err)
		}
		seeds[name] = seed
	}
	return seeds
}

func record(t *testing.T, seeds map[string]uint64) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(seeds)) {
		fmt.Fprintln(&b, name, seeds[name])
	}
	if err := os.WriteFile(recordedFile, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
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
	sums, histories := map[simulation.Kind]*totals{}, 0
	over, told := 0, began
	for round := uint64(0); time.Since(began) < *forFlag && (*moreFlag == 0 || histories < *moreFlag); round++ {
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%v: %d histories, %d violations", time.Since(began).Round(time.Second), histories, over)
		}
		for _, kind := range simulation.Kinds() {
			if *onlyFlag != "" && kind.String() != *onlyFlag {
				continue
			}
			if sums[kind] == nil {
				sums[kind] = &totals{}
			}
			n := perKind[kind] / 40
			histories += int(n)
			if seed := search(kind, nil, first+round*n, first+(round+1)*n-1, sums[kind], badOf(kind)); seed != 0 {
				over++
				text, _ := simulation.Print(kind, nil, seed, badOf(kind))
				t.Errorf("%s\nreplay: %s", text, replay(kind, nil, seed))
			}
		}
	}
	for _, kind := range simulation.Kinds() {
		if sum := sums[kind]; sum != nil {
			t.Logf("%v: %v\n%s", kind, sum, sum.faults())
		}
	}
	took := time.Since(began)
	t.Logf("%v: %d histories from seed %d on, %d violations; %.0f a second on %d processors", took.Round(time.Second),
		histories, first, over, float64(histories)/took.Seconds(), runtime.GOMAXPROCS(0))
}
