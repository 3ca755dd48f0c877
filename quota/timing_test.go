package quota

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultFreshness(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ settle, clockError, window, want time.Duration }{
		{0, 0, time.Second, 2500 * time.Millisecond},
		{3 * time.Second, 0, time.Minute, 2500 * time.Millisecond},
		{time.Second, 0, time.Second, 833 * time.Millisecond},
		{MaxSettle, 0, time.Minute, 50 * time.Second},
		// Five sixths would be 250 ms, of which the clock error leaves less.
		{300 * time.Millisecond, 0, time.Second, 198 * time.Millisecond},
		// Nothing is left, or the times are out of bounds: refused later.
		{100 * time.Millisecond, 0, time.Second, 83 * time.Millisecond},
		{1000 * time.Hour, 1000 * time.Hour, time.Second, 3_000_000 * time.Second},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, time.Duration(math.MaxInt64 / 6 * 5).Truncate(time.Millisecond)},
	} {
		p := Policy{Timing: Timing{Settle: test.settle, ClockError: test.clockError}, Limits: []Limit{{Permits: 1, Window: test.window}}}
		if got := p.WithDefaults().Freshness; got != test.want {
			t.Errorf("settle %v, clock_error %v, window %v: got %v, want %v", test.settle, test.clockError, test.window, got, test.want)
		}
	}
}

func TestTiming(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct {
		settle, freshness, clockError, window time.Duration
		need                                  string // "" if long enough
	}{
		{3000 * ms, 2500 * ms, 50 * ms, time.Second, ""},
		{3000 * ms, 2500 * ms, 50 * ms, time.Minute, ""},
		{3000 * ms, 2900 * ms, 50 * ms, time.Second, "at least 3.007s"},
		{3007 * ms, 2900 * ms, 50 * ms, time.Second, ""},
		{3006 * ms, 2900 * ms, 50 * ms, time.Second, "at least 3.007s"},
		{3000 * ms, 2500 * ms, 250 * ms, time.Second, "at least 3.007s"},
		{3000 * ms, 2836 * ms, 50 * ms, time.Minute, "at least 3.002s"},
		{3000 * ms, -2500 * ms, 50 * ms, time.Second, "from 50ms to 1m0s"},
		{3000 * ms, math.MaxInt64, 50 * ms, time.Second, "from 50ms to 1m0s"},
		{3000 * ms, 2500 * ms, math.MaxInt64, time.Second, "at most 1m0s"},
		{math.MaxInt64, 2500 * ms, 50 * ms, time.Second, "from 100ms to 1m0s"},
	} {
		p := Policy{Timing: Timing{Settle: test.settle, Freshness: test.freshness, ClockError: test.clockError}, Limits: []Limit{{Permits: 1, Window: test.window}}}
		missing := strings.Join(p.Unsupported(), "; ")
		if (missing == "") != (test.need == "") || !strings.Contains(missing, test.need) {
			t.Errorf("%+v: %s", test, missing)
		}
		if missing == "" && p.Validate() != nil {
			t.Errorf("%+v: Validate differs: %v", test, p.Validate())
		}
	}
	// A window that is only announced counts already.
	p := Policy{Timing: Timing{Settle: 3000 * ms, Freshness: 2870 * ms}, Limits: []Limit{{Permits: 1, Window: time.Second}}}
	if missing := p.Unsupported(); len(missing) > 0 {
		t.Error(missing)
	}
	p.Next = []LimitChange{{newYear, []Limit{{Permits: 1, Window: time.Minute}}}}
	if len(p.Unsupported()) == 0 {
		t.Error("the announced window of a minute was left out")
	}
}

// The rule itself, in exact rational arithmetic:
// S >= S'(1+r)/(1-r) + 2e(1+r) + w*r, r = 1/1000.
func TestMinSettleForIsTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fresh := rapid.Int64Range(0, int64(MaxSettle)).Draw(t, "freshness")
		clock := rapid.Int64Range(0, int64(MaxSettle)).Draw(t, "clock error")
		window := rapid.Int64Range(0, int64(MaxWindow)).Draw(t, "window")
		need := new(big.Rat).Mul(big.NewRat(fresh, 1), big.NewRat(1001, 999))
		need.Add(need, new(big.Rat).Mul(big.NewRat(2*clock, 1), big.NewRat(1001, 1000)))
		need.Add(need, big.NewRat(window, 1000))

		got := MinSettleFor(time.Duration(fresh), time.Duration(clock), time.Duration(window))
		if new(big.Rat).SetInt64(int64(got)).Cmp(need) < 0 {
			t.Fatalf("%v is less than the rule's %v ns", got, need.FloatString(3))
		}
		// No more than the roundings: three to a nanosecond, one to a millisecond.
		if new(big.Rat).SetInt64(int64(got-time.Millisecond-3)).Cmp(need) > 0 {
			t.Fatalf("%v is more than a millisecond above the rule's %v ns", got, need.FloatString(3))
		}
	})
}

// Clocks part for the longest window, and for three of them and the guard under another
// shape, whose lookback reaches so far (docs/proof/protocol.md, section 10).
func TestDriftWindow(t *testing.T) {
	t.Parallel()
	p := Policy{Limits: []Limit{{Permits: 1, Window: time.Second}, {Permits: 1, Window: 10 * time.Second}}, Timing: Timing{Guard: 20 * time.Millisecond}}
	for shape, want := range map[Shape]time.Duration{
		"": 10 * time.Second, ShapeFixed: 10 * time.Second, ShapeSliding: 30_020 * time.Millisecond, ShapeBucket: 30_020 * time.Millisecond,
	} {
		if p.Shape = shape; p.DriftWindow() != want {
			t.Errorf("shape %q: %v, want %v", shape, p.DriftWindow(), want)
		}
	}
}

// Whatever default the freshness gets, it passes if any allowed one does.
func TestDefaultFreshnessPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Timing: Timing{Settle: time.Duration(rapid.Int64Range(int64(minSettle), int64(MaxSettle)).Draw(t, "settle")), ClockError: time.Duration(rapid.Int64Range(1, int64(MaxSettle)).Draw(t, "clock error"))},
			Limits: anyLimits(t),
		}
		longest, _ := p.windows()
		least := MinSettleFor(minFreshness, p.ClockError, longest)
		if missing := p.Unsupported(); (len(missing) == 0) != (least <= p.Settle) {
			t.Fatalf("%v, but %v is enough for the shortest freshness", missing, least)
		}
	})
}

func TestMinSettleForOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-1, math.MinInt64, MaxSettle + 1, math.MaxInt64} {
		w := d
		if d == MaxSettle+1 {
			w = 4*MaxWindow + 1
		}
		if MinSettleFor(d, 0, 0) != math.MaxInt64 || MinSettleFor(0, d, 0) != math.MaxInt64 || MinSettleFor(0, 0, w) != math.MaxInt64 {
			t.Errorf("%d: some settle time is enough", d)
		}
	}
}
