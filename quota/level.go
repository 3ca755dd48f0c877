package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Level is how a total is divided among the instances of a policy that shares by
// demand: small and of constant size, however many instances there are. One
// instance works it out from what all of them reported and writes it where all
// watch.
//
// Every instance works out its own claim from it, by what it reported itself at
// the entry's revision; the rest of the total, Claimed taken off, is divided
// equally. So the shares of one view sum to the total at most, whoever has
// joined, left or reported since: a level need not be recent to be safe.
type Level struct {
	// Entries are the divisions, in order of From; at most MaxLevelEntries. The
	// last that is in force at a window's start rules the window.
	Entries []LevelEntry
	// Until is when the level expires: windows that start at or after it are
	// divided equally.
	Until time.Time
	// Author is the incarnation that wrote it, Time when, by its clock.
	Author string
	Time   time.Time
}

// LevelEntry is one division.
type LevelEntry struct {
	// From is the first instant of the windows that it rules.
	From time.Time
	// Revision is that at which the reports were read.
	Revision int64
	// Limits has a level for every window length.
	Limits []LevelLimit

	// Demand is what this instance itself had reported at Revision, as in
	// Report.Demand. It is not part of the value in etcd: every reader adds its
	// own. Where the reader cannot know, it is the smaller of what it may be.
	Demand int64
}

// LevelLimit divides the total of one window length. An instance claims what it
// asks for beyond Base, which it has from the equal part anyway, and Most at
// most.
type LevelLimit struct {
	Window  time.Duration `json:"-"`
	Base    int64         `json:"base"`
	Most    int64         `json:"most"`
	Claimed int64         `json:"claimed"` // the sum of all claims
}

// Bounds of a level.
const (
	MaxLevelEntries = 8
	MaxLevelBytes   = 16 << 10
	// MaxDemand bounds Report.Demand: the largest limit in the shortest window.
	MaxDemand = MaxPermits * 10 * 1000
)

// Claim returns how many permits of one window an instance with that demand
// claims. It never exceeds Most, and is 0 for a demand that is not positive.
func (l *LevelLimit) Claim(demand int64) int64 {
	return min(max(0, DemandFor(demand, l.Window)-l.Base), l.Most)
}

// DemandFor returns the permits of one window that a demand (in permits per
// 1,000 seconds) comes to, rounded up.
func DemandFor(demand int64, window time.Duration) int64 {
	if demand <= 0 || window <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(demand, MaxDemand)), uint64(min(window, MaxWindow)))
	lo, carry := bits.Add64(lo, uint64(1000*time.Second)-1, 0)
	n, _ := bits.Div64(hi+carry, lo, uint64(1000*time.Second))
	return int64(n)
}

// At returns the entry in force for windows that start at wall, in nanoseconds
// since the Unix epoch; nil where there is none.
func (l *Level) At(wall int64) *LevelEntry {
	if l == nil || wall >= nanos(l.Until) {
		return nil
	}
	for i := len(l.Entries) - 1; i >= 0; i-- {
		if nanos(l.Entries[i].From) <= wall {
			return &l.Entries[i]
		}
	}
	return nil
}

// Limit returns the level of a window length, or nil.
func (e *LevelEntry) Limit(window time.Duration) *LevelLimit {
	for i := range e.Limits {
		if e.Limits[i].Window == window {
			return &e.Limits[i]
		}
	}
	return nil
}

// Clone returns a copy that shares nothing with l.
func (l Level) Clone() Level {
	entries := make([]LevelEntry, len(l.Entries))
	for i, e := range l.Entries {
		e.Limits = append([]LevelLimit(nil), e.Limits...)
		entries[i] = e
	}
	l.Entries = entries
	return l
}

// Validate returns all that is wrong with the level, as joined *FieldErrors, or
// nil.
func (l *Level) Validate() error {
	var errs problems
	if n := len(l.Entries); n == 0 || n > MaxLevelEntries {
		errs.add("entries", fmt.Sprintf("(%d of them)", n), fmt.Sprintf("from 1 to %d entries are needed", MaxLevelEntries), "")
	}
	errs.when("until", l.Until)
	errs.text("author", l.Author, 2*MaxNameBytes)
	for i, e := range l.Entries {
		field := fmt.Sprintf("entries[%d]", i)
		errs.when(field+".from", e.From)
		if i > 0 && !e.From.After(l.Entries[i-1].From) {
			errs.add(field+".from", e.From.UTC().Format(time.RFC3339Nano), "must be after the entry before it", "")
		}
		if e.Revision <= 0 {
			errs.add(field+".revision", e.Revision, "must be positive", "")
		}
		if n := len(e.Limits); n == 0 || n > MaxLevelLimits {
			errs.add(field+".limits", fmt.Sprintf("(%d of them)", n), fmt.Sprintf("from 1 to %d are needed", MaxLevelLimits), "")
		}
		for j, m := range e.Limits {
			if e.Limit(m.Window) != &e.Limits[j] {
				errs.add(field+".limits", m.Window, "two levels have the same window", "")
			}
			if m.Base < 0 || m.Most < 0 || m.Claimed < 0 || max(m.Base, m.Most, m.Claimed) > MaxPermits {
				errs.add(fmt.Sprintf("%s.limits[%d]", field, j), fmt.Sprintf("%d, %d, %d", m.Base, m.Most, m.Claimed), fmt.Sprintf("base, most and claimed must be from 0 to %d", MaxPermits), "")
			}
		}
	}
	return errors.Join(errs...)
}

// MaxLevelLimits is the most window lengths of an entry: those of a policy and
// of what it announces.
const MaxLevelLimits = 2 * MaxLimits

type wireLevel struct {
	Schema  int         `json:"schema"`
	Entries []wireEntry `json:"entries"`
	Until   time.Time   `json:"until"`
	Author  string      `json:"author,omitempty"`
	Time    time.Time   `json:"time,omitzero"`
}

type wireEntry struct {
	From     time.Time        `json:"from"`
	Revision int64            `json:"revision"`
	Limits   []wireLevelLimit `json:"limits"`
}

type wireLevelLimit struct {
	Window length `json:"window"`
	LevelLimit
}

// MarshalJSON writes the level as its key's value, without the reader's demand.
func (l Level) MarshalJSON() ([]byte, error) {
	w := wireLevel{Schema: Schema, Until: l.Until.UTC(), Author: l.Author, Time: l.Time.UTC()}
	for _, e := range l.Entries {
		x := wireEntry{From: e.From.UTC(), Revision: e.Revision}
		for _, m := range e.Limits {
			x.Limits = append(x.Limits, wireLevelLimit{length(m.Window), m})
		}
		w.Entries = append(w.Entries, x)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a level. Fields that it does not know are ignored, a
// schema that it does not know is refused. It does not validate.
func (l *Level) UnmarshalJSON(b []byte) error {
	var w wireLevel
	if err := decode("level", b, MaxLevelBytes, &w, &w.Schema); err != nil {
		return err
	}
	*l = Level{Until: w.Until, Author: w.Author, Time: w.Time}
	for _, x := range w.Entries {
		e := LevelEntry{From: x.From, Revision: x.Revision}
		for _, m := range x.Limits {
			m.LevelLimit.Window = time.Duration(m.Window)
			e.Limits = append(e.Limits, m.LevelLimit)
		}
		l.Entries = append(l.Entries, e)
	}
	return nil
}
