// Package measure times calls in interleaved rounds.
//
// A shared machine is slower in one minute than in the next. So each round measures
// every case once, a ratio is taken within a round, and the median over the rounds is
// reported. Times are of processor time, which other processes cannot take away.
package measure

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
)

// CPU returns the processor time that this process has used, user and system.
func CPU() time.Duration {
	cpu, _ := child.Used()
	return cpu
}

// Case is one thing to call, over and over.
type Case struct {
	// Name is in the manner of Go's benchmarks, with key=value parts.
	Name string
	// Call makes one call. It is called from many goroutines at once. Everything
	// is measured through such a func value, the floors too.
	Call func()
	// Beside is measured right before Call, every time, to take the ratio of the
	// two: even a second later the machine may be slower. It may be nil.
	Beside func()
}

// beside is the name of the samples of Case.Beside.
func beside(name string) string { return name + "/beside=floor" }

// mode is how many goroutines call at once.
type mode struct {
	name    string
	perProc int // goroutines for every processor; 0: one goroutine in all
}

// Options say how long to measure.
type Options struct {
	Rounds int
	// Each is the time for one case in one round.
	Each time.Duration
	// Quick asks for less of everything: whether it works, not how fast it is.
	Quick bool
	// Log tells what goes on.
	Log func(format string, args ...any)
	// Samples take what is measured.
	Samples Samples
}

// The units of the samples.
const (
	// CPUUnit is nanoseconds of processor time, of all processors, for a call.
	CPUUnit = "cpu-ns/op"
	// WallUnit is nanoseconds that passed, for a call of any goroutine.
	WallUnit = "ns/op"
	// SliceUnit is nanoseconds for a call of a single goroutine, in the least
	// disturbed slices of a round.
	SliceUnit  = "slice-ns/op"
	BytesUnit  = "B/op"
	AllocsUnit = "allocs/op"
)

// Run measures every case in every mode, o.Rounds times over, interleaved.
func (o Options) Run(ctx context.Context, cases []Case) error {
	testing.Init()
	modes := []mode{{"one", 0}, {"procs", 1}, {"1000", max(1, 1000/runtime.GOMAXPROCS(0))}}
	calls := map[string]int{} // how many calls fill o.Each
	for round := range o.Rounds {
		o.Log("round %d of %d: %d cases, %d modes", round+1, o.Rounds, len(cases), len(modes))
		for _, mode := range modes {
			for _, c := range cases {
				if err := ctx.Err(); err != nil {
					return err
				}
				name := c.Name + "/goroutines=" + mode.name
				if c.Beside != nil {
					if err := o.Samples.once(beside(name), c.Beside, mode, calls, o.Each); err != nil {
						return err
					}
				}
				if err := o.Samples.once(name, c.Call, mode, calls, o.Each); err != nil {
					return err
				}
				if c.Beside != nil && mode.perProc == 0 {
					o.Samples.inSlices(name, c, o.Each)
				}
			}
		}
	}
	return nil
}

// once measures one case in one round.
func (s Samples) once(name string, call func(), mode mode, calls map[string]int, each time.Duration) error {
	if calls[name] == 0 {
		calls[name] = calibrate(call, mode, each)
	}
	if err := flag.Set("test.benchtime", fmt.Sprintf("%dx", calls[name])); err != nil {
		return err
	}
	r := testing.Benchmark(func(b *testing.B) { run(b, call, mode) })
	n := float64(r.N)
	s.Add(name, WallUnit, float64(r.T.Nanoseconds())/n)
	s.Add(name, CPUUnit, r.Extra[CPUUnit])
	s.Add(name, BytesUnit, float64(r.MemBytes)/n)
	s.Add(name, AllocsUnit, float64(r.AllocsPerOp()))
	return nil
}

// calibrate returns how many calls take about the time each, of processor time:
// on a busy machine, the time on the wall tells nothing. A thousand goroutines
// get more, so that what it takes to start them does not count.
func calibrate(call func(), mode mode, each time.Duration) int {
	began, n := CPU(), 0
	for batch := 1; CPU()-began < each/8 || n < 1000; batch *= 2 {
		for range batch {
			call()
		}
		n += batch
	}
	perCall := float64(CPU()-began) / float64(n)
	count := int(float64(each) / max(perCall, 1))
	if mode.perProc > 1 {
		count *= 4
	}
	return max(1, count)
}

func run(b *testing.B, call func(), mode mode) {
	b.ReportAllocs()
	before := CPU()
	if mode.perProc == 0 {
		for range b.N {
			call()
		}
	} else {
		inParallel(b.N, mode.perProc*runtime.GOMAXPROCS(0), call)
	}
	b.ReportMetric(float64(CPU()-before)/float64(b.N), CPUUnit)
}

// inParallel has n calls made by so many goroutines. Each has its part from the
// beginning: with testing's RunParallel they would fetch it from a counter, for
// which they would contend.
func inParallel(n, goroutines int, call func()) {
	var wg sync.WaitGroup
	for i := range goroutines {
		part := (i+1)*n/goroutines - i*n/goroutines
		wg.Go(func() {
			for range part {
				call()
			}
		})
	}
	wg.Wait()
}
