package protocol

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Budget is a limit of a long window, and the window that runs.
type Budget struct {
	quota.Limit
	Start, End int64 // corrected wall time, nanoseconds since the Unix epoch
	// Whole says that all of it is this instance's, which takes nothing from etcd.
	Whole bool
}

// Name is the window's length as in a limit.
func (b Budget) Name() string { return WindowName(b.Limit) }

// BudgetsAt returns the windows of a policy's budgets that contain the instant wall.
func BudgetsAt(p *quota.Policy, wall int64) (all []Budget) {
	zone, err := time.LoadLocation(p.Zone)
	if err != nil {
		zone = time.UTC // the policy is not valid
	}
	for _, l := range p.Budgets {
		all = append(all, BudgetAt(l, zone, wall))
	}
	return all
}

const day = 24 * time.Hour

// BudgetAt returns the window of a policy's budget that contains the instant wall. Windows
// shorter than a day are aligned to the Unix epoch. Days and months are the zone's, and
// several days are counted from 1970 on.
func BudgetAt(l quota.Limit, zone *time.Location, wall int64) Budget {
	if l.Window < day {
		w := quota.WindowAt(l.Window, wall)
		return Budget{Limit: l, Start: w.Start(), End: w.End()}
	}
	n := int(l.Window / day)
	k, start := int(wall/int64(l.Window)), func(k int) int64 { return startOfDay(1970, 1, 1+k*n, zone) }
	if n == 31 {
		y, m, _ := time.Unix(0, wall).In(zone).Date()
		k, start = 12*y+int(m)-1, func(k int) int64 { return startOfDay(0, 1+k, 1, zone) }
	}
	for wall < start(k) { // k is near, and a date may come twice
		k--
	}
	for wall >= start(k+1) {
		k++
	}
	return Budget{Limit: l, Start: start(k), End: start(k + 1)}
}

// startOfDay returns the first instant of a date, whose month and day may be out of their
// bounds.
func startOfDay(y, m, d int, zone *time.Location) int64 {
	want := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC)
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, zone)
	if t.Day() != want.Day() { // clocks were set ahead at midnight
		_, t = t.ZoneBounds()
	}
	return t.UnixNano()
}

// BudgetUse is what an instance does with its part of a budget.
type BudgetUse struct {
	Budget
	Taken int64 // from etcd, in this window
	// Spent says that there is nothing to be had at present, Away that etcd did not
	// answer.
	Spent, Away bool
	Used        int64 // issued in the window
	Need        int64 // the largest request that is not met, or 0
	// Left is what nobody had taken when etcd was read last; negative if it was not.
	Left int64
}
