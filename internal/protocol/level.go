package protocol

import (
	"errors"
	"math/bits"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Level is what all instances of a policy that shares by demand ask for, as they
// reported it at one revision. One instance collects it and writes it where all
// watch. From it and from the instances in the same view everybody works out the
// same shares, which sum to the total whatever the level says: a level that is
// old, wrong or forged divides badly and exceeds nothing.
type Level struct {
	Schema schema `json:"schema"`
	// Entries are in order of From; at most MaxLevelEntries. The last that is in
	// force at a window's start rules the window.
	Entries []LevelEntry `json:"entries"`
	// Until is when the level expires: windows that start at or after it are
	// divided equally.
	Until time.Time `json:"until"`
	// Author is the incarnation that wrote it, Time when, by its clock.
	Author string    `json:"author,omitempty"`
	Time   time.Time `json:"time,omitzero"`
}

// LevelEntry is what the instances ask for in windows from an instant on.
type LevelEntry struct {
	// From is the first instant of the windows that it rules.
	From time.Time `json:"from"`
	// Revision is that at which the reports were read. Nothing depends on it.
	Revision int64 `json:"revision"`
	// Demands are the instances' demands, in the compact form of package
	// internal/share. An instance that is not listed asks for nothing.
	Demands []byte `json:"demands"`
}

// Bounds of a level.
const (
	MaxLevelEntries = 8
	MaxLevelBytes   = 72 << 10
	// MaxLevelDemands bounds the bytes of all entries' Demands together.
	MaxLevelDemands = 48 << 10
	// MaxDemand bounds Report.Demand: the largest limit in the shortest window.
	MaxDemand = quota.MaxPermits * 10 * 1000
)

// DemandFor returns the permits of one window that a demand (in permits per
// 1,000 seconds) comes to, rounded up.
func DemandFor(demand int64, window time.Duration) int64 {
	if demand <= 0 || window <= 0 {
		return 0
	}
	return ceil(min(demand, MaxDemand), min(window, quota.MaxWindow), 1000*time.Second)
}

// ceil is n*part/whole, rounded up; none is negative.
func ceil(n int64, part, whole time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return int64(q)
}

// At returns the entry in force for windows that start at wall, in nanoseconds
// since the Unix epoch; nil where there is none.
func (l *Level) At(wall int64) *LevelEntry {
	start := time.Unix(0, wall)
	if l == nil || !start.Before(l.Until) {
		return nil
	}
	for i := len(l.Entries) - 1; i >= 0; i-- {
		if !start.Before(l.Entries[i].From) {
			return &l.Entries[i]
		}
	}
	return nil
}

// Validate returns all that is wrong with the level, as joined errors, or nil.
func (l *Level) Validate() error {
	var errs problems
	n, bytes := len(l.Entries), 0
	errs.add(n == 0 || n > MaxLevelEntries, "entries: there are %d, from 1 to %d are needed", n, MaxLevelEntries)
	errs.add(!dated(l.Until), "until: %v must lie in the years 1970 to 2199", l.Until)
	errs.add(len(l.Author) > 2*MaxNameBytes, "author: %d bytes are more than the most, %d", len(l.Author), 2*MaxNameBytes)
	for i, e := range l.Entries {
		errs.add(!dated(e.From), "entries[%d].from: %v must lie in the years 1970 to 2199", i, e.From)
		errs.add(i > 0 && !e.From.After(l.Entries[max(i, 1)-1].From), "entries[%d].from: %v must be after the entry before it", i, e.From)
		errs.add(e.Revision <= 0, "entries[%d].revision: %d must be positive", i, e.Revision)
		bytes += len(e.Demands)
	}
	errs.add(bytes > MaxLevelDemands, "entries: %d bytes of demands are more than the most, %d", bytes, MaxLevelDemands)
	return errors.Join(errs...)
}

// dated reports whether t lies far enough from the ends of an int64 of nanoseconds
// that sums with settle times and windows fit.
func dated(t time.Time) bool {
	return t.Unix() >= 0 && t.UTC().Year() < 2200
}
