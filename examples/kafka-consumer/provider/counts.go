package provider

import (
	"slices"
	"time"
)

// Window is what reached the provider in one window of its clock.
type Window struct {
	Start time.Time `json:"start"`
	// Records is what counts against the limit: each record of each call, also
	// of calls that were answered 429.
	Records int64 `json:"records"`
	Calls   int64 `json:"calls"`
}

// Totals are counts since the start.
type Totals struct {
	Calls     int64 `json:"calls"`
	Records   int64 `json:"records"`
	Processed int64 `json:"processed"` // different records
	Repeated  int64 `json:"repeated"`  // records that were processed before
	Rejected  int64 `json:"rejected"`  // for the record's sake
	Refused   int64 `json:"refused"`   // 429
	// Worst is the fullest window, and Over the number of windows with more than
	// the limit.
	Worst Window `json:"worst"`
	Over  int    `json:"over"`
	Limit int64  `json:"limit"`
}

// counts is pure, and for one goroutine at a time.
type counts struct {
	limit   int64
	length  time.Duration
	windows map[int64]*Window // by index since the Unix epoch
	totals  Totals
	seen    map[uint64]struct{} // keys of the processed records
}

func newCounts(limit int64, length time.Duration) counts {
	return counts{limit: limit, length: length, windows: map[int64]*Window{}, seen: map[uint64]struct{}{}}
}

// arrive counts a call with so many records.
func (c *counts) arrive(at time.Time, records int64) {
	k := at.UnixNano() / int64(c.length)
	w := c.windows[k]
	if w == nil {
		w = &Window{Start: time.Unix(0, k*int64(c.length))}
		c.windows[k] = w
	}
	w.Calls++
	w.Records += records
	c.totals.Calls++
	c.totals.Records += records
}

// process counts a processed record.
func (c *counts) process(key uint64) {
	if _, again := c.seen[key]; again {
		c.totals.Repeated++
		return
	}
	c.seen[key] = struct{}{}
	c.totals.Processed++
}

// summary returns the totals with the worst window.
func (c *counts) summary() Totals {
	t := c.totals
	t.Limit = c.limit
	for _, w := range c.windows {
		if w.Records > t.Worst.Records {
			t.Worst = *w
		}
		if w.Records > c.limit {
			t.Over++
		}
	}
	return t
}

// recent returns the last n windows, newest first.
func (c *counts) recent(n int) []Window {
	all := make([]Window, 0, len(c.windows))
	for _, w := range c.windows {
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Window) int { return b.Start.Compare(a.Start) })
	return all[:min(n, len(all))]
}
