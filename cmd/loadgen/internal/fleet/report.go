package fleet

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// report sums a run up.
func (r *run) report() *load.Report {
	o := &r.observed
	rep := &load.Report{Schema: load.Schema, Config: r.c.Asked, WindowNs: int64(r.c.Window()), LeastUse: o.LeastUse,
		Events: r.happened.events, Shares: r.shares, Acquire: curve(r.crew.took), Delay: curve(r.crew.delay)}
	rep.Windows, rep.Summary, rep.Verdict = load.Judge(*o)
	s := &rep.Summary
	if o.Active != load.Never {
		s.SettleSeconds = time.Unix(0, o.Active-int64(r.c.Ahead)).Sub(r.began).Seconds()
	}
	if s.Budgets = r.budgets; s.Budgets != nil {
		s.Budgets.EachPerSecond = float64(s.Budgets.Transactions) / float64(r.c.Instances) / time.Since(r.began).Seconds()
		for _, w := range rep.Windows {
			if length, err := time.ParseDuration(w.Length); err == nil && length > quota.MaxWindow {
				s.Budgets.NotIssued -= w.Issued
			}
		}
	}
	s.AcquireNs, s.DelayNs = quantiles(r.crew.took), quantiles(r.crew.delay)
	if o.Start != load.Never {
		rep.Began = time.Unix(0, o.Start).UTC()
		rep.Within, rep.Rolling = o.Within(), o.Rolling()
		slices.SortStableFunc(rep.Events, func(a, b load.Event) int { return a.At.Compare(b.At) })
	}
	if n := r.crew.first.TotalCount(); n > 0 {
		s.FirstLoan = &load.FirstLoan{Quantiles: quantiles(r.crew.first), Windows: n}
	}
	s.Etcd, s.CPUSeconds = r.writes, r.cpu.Seconds()
	s.MaxRSSBytes = r.crew.maxRSS
	if r.c.Churn > 0 || r.c.Rolling || len(r.c.Crashes) > 0 {
		s.Departures = &r.departed
	}
	return rep
}

func quantiles(h *hdrhistogram.Histogram) load.Quantiles {
	return load.Quantiles{P50: h.ValueAtQuantile(50), P99: h.ValueAtQuantile(99), P999: h.ValueAtQuantile(99.9), Max: h.Max()}
}

// curve returns a histogram as parts of all calls and what they took at most.
func curve(h *hdrhistogram.Histogram) []load.Quantile {
	if h.TotalCount() == 0 {
		return nil
	}
	var points []load.Quantile
	for _, b := range h.CumulativeDistributionWithTicks(5) {
		points = append(points, load.Quantile{Part: b.Quantile / 100, Ns: b.ValueAt})
	}
	return points
}
