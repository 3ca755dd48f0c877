package differential

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/trace"
)

var tracesFlag = flag.String("traces", "", "judge the traces of a run in a `folder` by the model, instead of the recorded run")

// recordedRun is the traces of a run:
//
//	loadgen --processes 2 --instances 10 --rolling-restart --settle 1s --limit 200/250ms
//	    --change 2s=260/250ms --change 4s=190/250ms --change 6s=230/250ms --duration 8s
const recordedRun = "testdata/run"

// leastRulings is how many windows of a run there must be with a bound by [B-, B+].
const leastRulings = 20

// TestARunByTheModel judges a run by the proof's definitions. For commit times that the traces
// leave possible, the bound that these compute lies between those of the judge. So where it
// calls a window held, the window has at most the proved bound.
func TestARunByTheModel(t *testing.T) {
	t.Parallel()
	if *modelFlag == "" {
		t.Log("runs with -model")
		return
	}
	report := readRun(t).Judge()
	if report.Problem != "" || report.Over > 0 || len(report.Rulings) < leastRulings {
		t.Fatalf("%d rulings, want %d or more: %v", len(report.Rulings), leastRulings, report)
	}
	var asked []*trace.Ruling
	r := rand.New(rand.NewPCG(1, 37))
	all := func(yield func(question) bool) {
		for i := range report.Rulings {
			for _, how := range []func(after, by int64) int64{
				func(after, _ int64) int64 { return after },
				func(_, by int64) int64 { return by },
				func(after, by int64) int64 { return after + r.Int64N(by-after+1) },
			} {
				ruling := &report.Rulings[i]
				ask, ok := askOf(ruling, how)
				if !ok {
					continue
				}
				asked = append(asked, ruling)
				if !yield(question{ask, ""}) {
					return
				}
			}
		}
	}
	questions := slices.Collect(all)
	n, held := 0, 0
	err := eachAnswer(t.Context(), *modelFlag, slices.Values(questions), func(_ question, answer string) bool {
		agree(t, asked[n], answer)
		if asked[n].Held() {
			held++
		}
		n++
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < leastRulings || held == 0 {
		t.Errorf("%d windows were compared, %d of them held", n, held)
	}
	t.Logf("%d bounds of %d windows, %d of them of windows that held", n, len(report.Rulings), held)
}

// agree compares a ruling with the model's answer: B-, B+ and the bound.
func agree(t *testing.T, ruling *trace.Ruling, answer string) {
	t.Helper()
	var from, to, n int64
	if _, err := fmt.Sscan(answer, &from, &to, &n); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	// The ruling's own bound is not exact where the window has less.
	exact := ruling.Views.Bound(ruling.Window, ruling.From, ruling.To, ruling.Last, math.MaxInt64, false)
	near := func(a, b int64) bool { return max(a-b, b-a) <= 2 } // nanoseconds: the judge rounds
	switch {
	case !near(from, ruling.From) || !near(to, ruling.To):
		t.Errorf("window %v: the judge looks from %d to %d, the proof from %d to %d", ruling.Window, ruling.From, ruling.To, from, to)
	case n < exact.Least || n > exact.Most:
		t.Errorf("window %v: the judge's bound is from %d to %d, the proof's %d", ruling.Window, exact.Least, exact.Most, n)
	case ruling.Held() && ruling.Most > n, ruling.Over() && ruling.Least <= n:
		t.Errorf("window %v: from %d to %d permits, and the proof's bound is %d", ruling.Window, ruling.Least, ruling.Most, n)
	}
}

// askOf is the question for a window, with a commit time for each view. It is false if the
// traces know too little of the views.
func askOf(ruling *trace.Ruling, how func(after, by int64) int64) (ask string, ok bool) {
	s := &story{w: ruling.Window}
	views, last := slices.Clone(ruling.Views), int64(0)
	for i := range views {
		v := &views[i]
		p := v.Policy
		if v.Lost > 0 || v.Gap || p == nil || len(p.Limits) != 1 || p.Limits[0].Window != s.w.Length || p.From.After(time.Unix(0, s.w.Start())) {
			return "", false
		}
		after := max(v.After, last, v.By-int64(10*time.Second)) + 1
		if after > v.By {
			return "", false
		}
		if last = how(after, v.By); i == 0 { // what was before it is not known
			last = after
		}
		v.After, v.By = last, last
		for _, in := range v.Instances {
			s.ids = append(s.ids, in.ID)
		}
	}
	slices.Sort(s.ids)
	s.ids = slices.Compact(s.ids)
	var l line
	l.WriteString("window")
	s.ranks(&l)
	l.ints(int64(ruling.Settle), int64(ruling.Freshness), int64(ruling.ClockError), protocol.DriftBound, int64(ruling.Length), ruling.Last)
	l.ints(int64(len(views)))
	for i := range views {
		l.ints(views[i].By)
		s.write(&l, &held{View: views[i].View})
	}
	return l.String(), true
}

// readRun reads the traces of the run.
func readRun(t *testing.T) *trace.Run {
	t.Helper()
	if *tracesFlag != "" {
		run, err := trace.ReadDir(*tracesFlag)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	files, err := filepath.Glob(recordedRun + "/*.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no traces: %v", recordedRun, err)
	}
	run := new(trace.Run)
	for _, name := range files {
		packed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Add(text, false); err != nil {
			t.Fatal(err)
		}
	}
	return run
}
