package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Level is what all instances of a policy that shares by demand ask for, as they
// reported it at one revision. One instance collects it and writes it where all
// watch. From it and from the instances in the same view everybody works out the
// same shares, which sum to the total whatever the level says: a level that is
// old, wrong or forged divides badly and exceeds nothing.
type Level struct {
	// Entries are in order of From; at most MaxLevelEntries. The last that is in
	// force at a window's start rules the window.
	Entries []LevelEntry
	// Until is when the level expires: windows that start at or after it are
	// divided equally.
	Until time.Time
	// Author is the incarnation that wrote it, Time when, by its clock.
	Author string
	Time   time.Time
}

// LevelEntry is what the instances ask for in windows from an instant on.
type LevelEntry struct {
	// From is the first instant of the windows that it rules.
	From time.Time
	// Revision is that at which the reports were read. Nothing depends on it.
	Revision int64
	// Demands are the instances' demands, in the compact form of package
	// internal/share. An instance that is not listed asks for nothing.
	Demands []byte
}

// Bounds of a level.
const (
	MaxLevelEntries = 8
	MaxLevelBytes   = 72 << 10
	// MaxLevelDemands bounds the bytes of all entries' Demands together.
	MaxLevelDemands = 48 << 10
	// MaxDemand bounds Report.Demand: the largest limit in the shortest window.
	MaxDemand = MaxPermits * 10 * 1000
)

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

// Validate returns all that is wrong with the level, as joined *FieldErrors, or
// nil.
func (l *Level) Validate() error {
	var errs problems
	if n := len(l.Entries); n == 0 || n > MaxLevelEntries {
		errs.add("entries", fmt.Sprintf("(%d of them)", n), fmt.Sprintf("from 1 to %d entries are needed", MaxLevelEntries), "")
	}
	errs.when("until", l.Until)
	errs.text("author", l.Author, 2*MaxNameBytes)
	bytes := 0
	for i, e := range l.Entries {
		field := fmt.Sprintf("entries[%d]", i)
		errs.when(field+".from", e.From)
		if i > 0 && !e.From.After(l.Entries[i-1].From) {
			errs.add(field+".from", e.From.UTC().Format(time.RFC3339Nano), "must be after the entry before it", "")
		}
		if e.Revision <= 0 {
			errs.add(field+".revision", e.Revision, "must be positive", "")
		}
		bytes += len(e.Demands)
	}
	if bytes > MaxLevelDemands {
		errs.add("entries", fmt.Sprintf("(%d bytes of demands)", bytes), fmt.Sprintf("at most %d bytes are allowed", MaxLevelDemands), "")
	}
	return errors.Join(errs...)
}

type wireLevel struct {
	Schema  int         `json:"schema"`
	Entries []wireEntry `json:"entries"`
	Until   time.Time   `json:"until"`
	Author  string      `json:"author,omitempty"`
	Time    time.Time   `json:"time,omitzero"`
}

type wireEntry struct {
	From     time.Time `json:"from"`
	Revision int64     `json:"revision"`
	Demands  []byte    `json:"demands"`
}

// MarshalJSON writes the level as its key's value.
func (l Level) MarshalJSON() ([]byte, error) {
	w := wireLevel{Schema: Schema, Until: l.Until.UTC(), Author: l.Author, Time: l.Time.UTC()}
	for _, e := range l.Entries {
		w.Entries = append(w.Entries, wireEntry{e.From.UTC(), e.Revision, e.Demands})
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
	for _, e := range w.Entries {
		l.Entries = append(l.Entries, LevelEntry(e))
	}
	return nil
}
