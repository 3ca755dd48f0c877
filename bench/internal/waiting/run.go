// Package waiting measures callers that wait for a permit: their cost, how soon
// after a boundary they are served, and whether in their turn.
package waiting

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// Run measures and reports.
func Run(ctx context.Context, o measure.Options) (*report.Section, error) {
	sec := &report.Section{Title: "Waiting"}
	for _, f := range []func(context.Context, measure.Options, *report.Section) error{crowds, parked, millions, boundaries} {
		if err := f(ctx, o, sec); err != nil {
			return nil, err
		}
	}
	return sec, nil
}

const crowdWindow = 200 * time.Millisecond

func crowds(ctx context.Context, o measure.Options, sec *report.Section) error {
	s, n, rounds := o.Samples, int64(100_000), 3
	if o.Quick {
		n, rounds = 5000, 1
	}
	share := n / 5
	// Callers have a context that could end, as they have in a program.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := contenders(ctx)
	warm(n)
	for round := range rounds {
		o.Log("crowds, round %d of %d", round+1, rounds)
		for _, c := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			got, err := gather(c, n, share, crowdWindow)
			if err != nil {
				return err
			}
			name := "waiting/" + c.name
			s.Add(name, "B/op", got.bytes)
			s.Add(name, measure.CPUUnit, float64(got.cpu)/float64(n))
			s.Add(name, "last-ms", got.last.Seconds()*1000)
			s.Add(name, "misplaced-%", 100*got.misplaced)
			runtime.GC()
		}
	}
	sec.Text("%d callers wait at once for %d permits in every %v: the last of them can be served after 0.8 s to 1 s. A waiter's bytes are "+
		"heap and stack, those included that callers who are served by then have left behind; its CPU is all that it took from asking to being served. *Misplaced* were served in another window than "+
		"their place in the queue says.", n, share, crowdWindow)
	chart := report.Chart{File: "waiting", Title: fmt.Sprintf("%d wait: processor time for each", n), Unit: "us"}
	var rows [][]string
	for _, c := range all {
		name := "waiting/" + c.name
		rows = append(rows, []string{
			c.name, fmt.Sprintf("%.0f", s.Median(name, "B/op")), fmt.Sprintf("%.2f", s.Median(name, measure.CPUUnit)/1000),
			fmt.Sprintf("%.2f", s.Median(name, "last-ms")/1000), fmt.Sprintf("%.1f%%", s.Median(name, "misplaced-%")),
		})
		chart.Bars = append(chart.Bars, report.Bar{Label: c.name, Value: s.Median(name, measure.CPUUnit) / 1000, Ours: c.ours})
	}
	sec.Table([]string{"way to wait", "bytes each", "CPU us each", "last after s", "misplaced"}, rows)
	sec.Draw(chart)
	for _, c := range all {
		if c.ours {
			sec.Aim(c.name+", part served in another window than its place says, %", "%.1f", 0, s.Median("waiting/"+c.name, "misplaced-%"), "FIFO")
		}
	}
	return nil
}

func millions(_ context.Context, o measure.Options, sec *report.Section) error {
	s, n, rounds := o.Samples, 1_000_000, 3
	if o.Quick {
		n, rounds = 20_000, 1
	}
	const name = "million/quotient AcquireFunc"
	wrong := 0
	for round := range rounds {
		o.Log("a million functions wait, round %d of %d", round+1, rounds)
		m, err := endure(n)
		if err != nil {
			return err
		}
		wrong += m.refusedOrOutOfTheTurn
		s.Add(name, "B/op", m.bytes)
		s.Add(name, "cancel-ns", float64(m.cancel))
		s.Add(name, "serve-ns", float64(m.serve))
	}
	sec.Text("%d functions wait by AcquireFunc; every third is cancelled, the others are served in one window. "+
		"%d were refused, or served out of turn.", n, wrong)
	sec.Aim("bytes of a waiting AcquireFunc", "%.1f", 64, s.Median(name, "B/op"), "")
	sec.Aim("of a million that wait, a third cancelled: refused, or out of turn", "%.0f", 0, float64(wrong), "")
	sec.Aim("CPU to serve it, us", "%.3f", 0.1, s.Median(name, "serve-ns")/1000, "")
	sec.Aim("CPU to cancel one of a million, us", "%.3f", 1, s.Median(name, "cancel-ns")/1000, "the goal is that it be O(1)")
	return nil
}

func boundaries(ctx context.Context, o measure.Options, sec *report.Section) error {
	windows := 25
	if o.Quick {
		windows = 2
	}
	var rows [][]string
	for _, n := range []int{1, 1000} {
		for _, busy := range []bool{false, true} {
			if err := ctx.Err(); err != nil {
				return err
			}
			o.Log("boundary: %d waiters, computing %v", n, busy)
			b, err := observe(busy, n, windows)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%d; idle", n)
			if busy {
				name = fmt.Sprintf("%d; all processors compute", n)
			}
			rows = append(rows, []string{name, us(b.first, 50), us(b.first, 99), us(b.last, 50), us(b.last, 99)})
		}
	}
	sec.Text("Microseconds from a window's start to the first and to the last of the goroutines that waited for it by Take, over %d windows. "+
		"An idle Go process sleeps in whole milliseconds; a computing goroutine is preempted after 10 ms.", windows)
	sec.Table([]string{"waiters", "first p50", "first p99", "last p50", "last p99"}, rows)
	return nil
}

func us(h *hdrhistogram.Histogram, quantile float64) string {
	return fmt.Sprintf("%.0f", float64(h.ValueAtQuantile(quantile))/1000)
}
