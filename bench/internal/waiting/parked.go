package waiting

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/child"
)

// A parked goroutine's bytes are measured in processes of their own, in which
// nobody is served and every goroutine begins with the smallest stack: by itself
// the runtime gives new goroutines 2 or 4 kB, by what it saw others use, and that
// would be the larger part of the difference.
const (
	parkedCrowd = 50_000
	parkedEnv   = "BENCH_PARKED"
	smallStacks = "GODEBUG=adaptivestackstart=0"
)

// parkers are ways to park; each returns how many are parked, and a function
// that parks the calling goroutine until the context ends.
var parkers = []struct {
	name string
	open func() (parked func() int, park func(context.Context), err error)
}{
	{ourParked, func() (func() int, func(context.Context), error) {
		l, err := open(1000, time.Minute)
		if err != nil {
			return nil, nil, err
		}
		l.TryTake(1000).N()
		return func() int { return l.Status().Waiting }, func(ctx context.Context) { _ = l.Acquire(ctx, consumer.Forever) }, nil
	}},
	{floorLinked, func() (func() int, func(context.Context), error) {
		q := &linked{}
		parked := func() int {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.queue.Len()
		}
		return parked, q.wait, nil
	}},
}

// linked is bare, but for a queue in which everybody has a place of his own and
// can leave it without a search.
type linked struct {
	mu    sync.Mutex
	queue list.List
}

func (q *linked) wait(ctx context.Context) {
	ch := make(chan struct{}, 1)
	q.mu.Lock()
	place := q.queue.PushBack(ch)
	q.mu.Unlock()
	select {
	case <-ch:
	case <-ctx.Done():
		q.mu.Lock()
		q.queue.Remove(place)
		q.mu.Unlock()
	}
}

// RunIfParked measures one way to park, prints the bytes of heap and of stack for
// each goroutine, and ends the process, if the process was started for that.
func RunIfParked() {
	name := os.Getenv(parkedEnv)
	if name == "" {
		return
	}
	heap, stack, err := park(name, parkedCrowd)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Println(heap, stack)
	os.Exit(0)
}

// park parks n goroutines and returns what each takes.
func park(name string, n int) (heap, stack float64, err error) {
	for _, p := range parkers {
		if p.name != name {
			continue
		}
		parked, one, err := p.open()
		if err != nil {
			return 0, 0, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel() //nolint:revive // one parker is used
		warm(int64(n))
		before := memory()
		for range n {
			go one(ctx)
		}
		for parked() < n {
			time.Sleep(5 * time.Millisecond)
		}
		after := memory()
		each := func(a, b uint64) float64 { return (float64(b) - float64(a)) / float64(n) }
		return each(before.HeapAlloc, after.HeapAlloc), each(before.StackInuse, after.StackInuse), nil
	}
	return 0, 0, fmt.Errorf("no way to park is called %q", name)
}

func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// parked measures every way to park and reports.
func parked(ctx context.Context, o measure.Options, sec *report.Section) error {
	s, rounds := o.Samples, 3
	if o.Quick {
		rounds = 1
	}
	sample := func(name string) string { return "parked/" + name }
	for round := range rounds {
		o.Log("parked, round %d of %d", round+1, rounds)
		for _, p := range parkers {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, err := child.Command(parkedEnv, p.name)
			if err != nil {
				return err
			}
			c.Env = append(c.Env, smallStacks)
			out, err := c.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			var heap, stack float64
			if _, err := fmt.Sscan(string(out), &heap, &stack); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			s.Add(sample(p.name), "heap-B/op", heap)
			s.Add(sample(p.name), "stack-B/op", stack)
			s.Add(sample(p.name), measure.BytesUnit, heap+stack)
		}
	}
	sec.Text("%d goroutines are parked, none is served, each with the smallest stack (%s), a context that could end, and nothing else: "+
		"bytes of each.", parkedCrowd, smallStacks)
	var rows [][]string
	for _, p := range parkers {
		rows = append(rows, []string{
			p.name, fmt.Sprintf("%.0f", s.Median(sample(p.name), "heap-B/op")), fmt.Sprintf("%.0f", s.Median(sample(p.name), "stack-B/op")),
			fmt.Sprintf("%.0f", s.Median(sample(p.name), measure.BytesUnit)),
		})
	}
	sec.Table([]string{"way to park", "heap", "stack", "together"}, rows)
	sec.Aim("bytes of a goroutine parked in Acquire, of one on a channel in a queue that it can leave", "%.2f", 1,
		s.Median(sample(ourParked), measure.BytesUnit)/s.Median(sample(floorLinked), measure.BytesUnit), "16 bytes: a place there has no deadline, no number of permits and no outcome")
	return nil
}
