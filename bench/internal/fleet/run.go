package fleet

import (
	"context"
	"fmt"
	"runtime"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/quota"
)

// line is what LINE's limiter went to: permits a second, on 96 machines.
const line = 2_000_000

// Run measures and reports.
func Run(ctx context.Context, o measure.Options) (*report.Section, error) {
	sizes, limits, windows := []int{96, 300}, []int64{line, quota.MaxPermits}, 4
	if o.Quick {
		sizes, limits, windows = []int{12}, []int64{100_000, quota.MaxPermits}, 1
	}
	sec := &report.Section{Title: "A fleet"}
	sec.Text("Instances of one service in one process on %d processors, each with its own session in etcd, which is a process of its own. "+
		"One goroutine on every instance asks for a permit after the other and waits where there is none, over %d whole seconds. "+
		"CPU is all that this process used, sessions included, for each permit. *Most in a window* is counted by the "+
		"callers, by the window that every permit names, under the smallest limit; asking for that costs time. The last limit of each size is more than the processors can use.", runtime.GOMAXPROCS(0), windows)
	var rows [][]string
	best := 0.0
	for _, n := range sizes {
		o.Log("a fleet of %d", n)
		more, most, err := one(ctx, n, limits, windows)
		if err != nil {
			return nil, err
		}
		rows, best = append(rows, more...), max(best, most)
	}
	sec.Table([]string{"instances, limit a second", "permits a second", "most in a window", "CPU ns a permit"}, rows)
	if !o.Quick {
		sec.Pass("permits a second of a fleet on this machine", "%.0f", line, best, "LINE's went to 2 million a second on 96 machines")
	}
	return sec, nil
}

// one measures a fleet of n under each of the limits.
func one(ctx context.Context, n int, limits []int64, windows int) (rows [][]string, best float64, err error) {
	f, err := Start(ctx, n, limits[0])
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	for _, limit := range limits {
		if err := f.Set(ctx, limit); err != nil {
			return nil, 0, err
		}
		apart := limit == limits[0]
		use := f.Load(ctx, windows, apart)
		text, most := fmt.Sprint(limit), ""
		if limit == quota.MaxPermits {
			text = "none in effect"
		}
		if apart {
			most = fmt.Sprint(use.Most)
		}
		rows = append(rows, []string{fmt.Sprintf("%d; %s", n, text), fmt.Sprintf("%.0f", use.PerSecond), most, fmt.Sprint(use.CPU.Nanoseconds())})
		best = max(best, use.PerSecond)
	}
	return rows, best, nil
}
