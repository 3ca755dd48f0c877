package quota

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestLimitsAt(t *testing.T) {
	t.Parallel()
	at := newYear.UnixNano()
	p := Policy{Limits: []Limit{{Permits: 1, Window: time.Second}}, From: newYear, Next: []LimitChange{
		{newYear.Add(time.Hour), []Limit{{Permits: 2, Window: time.Second}}},
		{newYear.Add(2 * time.Hour), []Limit{{Permits: 3, Window: time.Second}}},
	}}
	hour := int64(time.Hour)
	always, never := p, p
	always.From, always.Next = time.Time{}, nil
	never.From = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name   string
		policy Policy
		wall   int64
		want   int64 // permits; -1 if no limits are in force
	}{
		{"just before", p, at - 1, -1},
		{"at from", p, at, 1},
		{"before the first change", p, at + hour - 1, 1},
		{"at the first change", p, at + hour, 2},
		{"at the second change", p, at + 2*hour, 3},
		{"at the end of time", p, math.MaxInt64, 3},
		{"at the beginning", p, math.MinInt64, -1},
		{"no from", always, math.MinInt64, 1},
		// 9999 is beyond an int64 of nanoseconds; it must not wrap to the past.
		{"from 9999", never, at, -1},
	} {
		got := int64(-1)
		if limits := test.policy.LimitsAt(test.wall); limits != nil {
			got = limits[0].Permits
		}
		if got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestWindowAt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		length      time.Duration
		wall, index int64
	}{
		{time.Second, 0, 0},
		{time.Second, 999_999_999, 0},
		{time.Second, 1_000_000_000, 1},
		{time.Second, -1, -1},
		{time.Second, -1_000_000_000, -1},
		{time.Second, -1_000_000_001, -2},
		{time.Minute, newYear.UnixNano(), newYear.Unix() / 60},
	} {
		w := WindowAt(test.length, test.wall)
		if w.Index != test.index || w.Start() > test.wall || test.wall >= w.End() || w.End()-w.Start() != int64(test.length) {
			t.Errorf("%v at %d: window %d from %d to %d, want %d", test.length, test.wall, w.Index, w.Start(), w.End(), test.index)
		}
	}
}

// A long limit alone stays as it was given, and a guard must fit into its windows, not into the seconds by which time is
// divided beside it.
func TestALongLimitAlone(t *testing.T) {
	t.Parallel()
	long := []Limit{{Permits: 10, Window: 24 * time.Hour}}
	p := Policy{Limits: long}.WithDefaults()
	if !slices.Equal(p.Limits, long) || p.LimitsAt(0) == nil || len(p.LimitsAt(0)) != 0 {
		t.Errorf("%+v, of which shares have %+v", p.Limits, p.LimitsAt(0))
	}
	if p.Guard = time.Second / 2; p.Validate() != nil {
		t.Errorf("a guard of half a second was not taken: %v", p.Validate())
	}
	if p.Guard = 12 * time.Hour; p.Validate() == nil {
		t.Error("a guard of half a day was taken")
	}
	if p.From = time.Unix(1, 0); p.LimitsAt(0) != nil {
		t.Error("in force before it begins")
	}
}
