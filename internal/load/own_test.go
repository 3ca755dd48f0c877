package load

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// at is so many milliseconds after second 100.
func at(ms int64) int64 { return 100*second + ms*int64(time.Millisecond) }

// A permit is outside its window only if it cannot have been issued in it, however
// long the caller was held up.
func TestPlace(t *testing.T) {
	fixed := Placing{Length: time.Second, Aligned: true, Valid: time.Second, Tolerance: 50 * time.Millisecond}
	slots := Placing{Length: 2 * time.Millisecond, Valid: time.Second, Tolerance: 50 * time.Millisecond}
	guarded := Placing{Length: 2 * time.Millisecond, Valid: 20 * time.Millisecond, Slack: 2 * time.Millisecond, Tolerance: 50 * time.Millisecond}
	for _, c := range []struct {
		name                        string
		by                          Placing
		start, until, before, after int64
		want                        Place
		beyond                      time.Duration
	}{
		{"in the middle", fixed, at(0), at(1000), at(500), at(501), Inside, 0},
		{"as early as a clock may be", fixed, at(0), at(1000), at(-60), at(-50), Inside, 0},
		{"earlier", fixed, at(0), at(1000), at(-60), at(-50) - 1, Outside, 1},
		{"asked for early, and come in the window", fixed, at(0), at(1000), at(-900), at(3), Inside, 0},
		{"as late as a clock may be", fixed, at(0), at(1000), at(1049), at(1050) - 1, Inside, 0},
		{"held up", fixed, at(0), at(1000), at(1050) - 1, at(1050), HeldUp, 0},
		{"held up for an hour", fixed, at(0), at(1000), at(0), at(3600e3), HeldUp, 0},
		{"asked for when the window was over", fixed, at(0), at(1000), at(1050), at(1050), Outside, 0},
		{"asked for long after", fixed, at(0), at(1000), at(3050), at(3051), Outside, 2 * time.Second},
		{"a clock that was set back", fixed, at(0), at(1000), at(500), at(400), HeldUp, 0},
		{"no window", fixed, at(1), at(1001), at(500), at(501), Outside, 0},
		{"two windows", fixed, at(0), at(2000), at(500), at(501), Outside, 0},
		{"a slot", slots, at(1), at(1001), at(2), at(3), Inside, 0},
		{"a slot that is over", slots, at(1), at(1001), at(54), at(55), Outside, time.Millisecond},
		{"a slot and its guard", guarded, at(1), at(21), at(2), at(3), Inside, 0},
		{"issued late in its slot", guarded, at(1), at(23) - 1, at(2), at(3), Inside, 0},
		{"a guard too short", guarded, at(1), at(21) - 1, at(2), at(3), Outside, 0},
		{"a guard too long", guarded, at(1), at(23), at(2), at(3), Outside, 0},
		{"a slot, held up", slots, at(1), at(1001), at(2), at(55), HeldUp, 0},
	} {
		if got, beyond := c.by.Place(c.start, c.until, c.before, c.after); got != c.want || beyond != c.beyond {
			t.Errorf("%s: %v, %v beyond; want %v, %v", c.name, got, beyond, c.want, c.beyond)
		}
	}
}

// granted is a permit as the model knows it: issued at an instant of true time, by
// an instance whose clock errs.
type granted struct{ start, before, after int64 }

// observe counts permits as a generator does.
func observe(r *Run, p Placing, permits []granted) {
	r.Own = Own{Cell: 10 * time.Millisecond, Tolerance: p.Tolerance}
	tallies := (&Sheet{Since: 0, Until: at(20e3), Lengths: []time.Duration{Labelled: p.Length, Came: r.Own.Cell, Misplaced: p.Length}}).New()
	labelled, came, outside := tallies[Labelled], tallies[Came], tallies[Misplaced]
	for _, i := range permits {
		labelled.Issue(i.start, 1)
		came.Issue(i.after, 1)
		switch place, _ := p.Place(i.start, i.start+int64(p.Valid), i.before, i.after); place {
		case HeldUp:
			came.Offer(i.after, 1)
		case Outside:
			outside.Issue(i.after, 1)
		}
	}
	r.Counts, r.Own.Came, r.Own.Misplaced = labelled.Counts(), came.Counts(), outside.Counts()
}

var placed = Placing{Length: time.Second, Aligned: true, Valid: time.Second, Tolerance: 50 * time.Millisecond}

// A fleet that is right is never refused, whatever its clocks' errors within the
// tolerance, and however long its callers are held up; only that it is unknown may
// be said of it. A permit that was asked for and came outside its window is found.
func TestTheOwnClockAgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 6).Draw(t, "limit")
		r := Run{Timeline: Timeline{Changes: []Change{{Limits: perSecond(limit)}}, Settle: 3 * time.Second, Slack: placed.Tolerance},
			Fleet: 2, Servers: 1, Active: at(0), Start: at(0), End: at(4000)}
		r.Serving.Record(at(0), 1, time.Second)
		var permits []granted
		room := func(name string) time.Duration {
			return time.Duration(rapid.SampledFrom([]int64{0, 1, 5e6, 60e6, 400e6, 3e9}).Draw(t, name))
		}
		for k := int64(100); k < 104; k++ {
			for range limit {
				clockError := rapid.Int64Range(-50e6, 50e6).Draw(t, "clock error")
				told := k*second + rapid.Int64Range(0, second-1).Draw(t, "told") // by the instance's clock
				when := told - clockError
				permits = append(permits, granted{k * second, when - int64(room("asked")), when + int64(room("held up"))})
			}
		}
		observe(&r, placed, permits)
		_, summary, verdict := Judge(r)
		heldUp := 0
		for _, p := range permits {
			if p.after >= p.start+second+50e6 {
				heldUp++
			}
		}
		want := Held
		if 10*heldUp > len(permits) {
			want = Unknown
		}
		if verdict != want || summary.OwnClock.Unplaced != int64(heldUp) || summary.OwnClock.Outside != 0 {
			t.Fatalf("%q, want %q of %d permits, %d held up: %+v", verdict, want, len(permits), heldUp, summary)
		}
		// Move one away from its window, before it began or after it was over.
		p := &permits[rapid.IntRange(0, len(permits)-1).Draw(t, "moved")]
		p.before = p.start + second + 50e6 + rapid.Int64Range(0, 5*second).Draw(t, "late")
		p.after = p.before + rapid.Int64Range(0, second).Draw(t, "held up")
		if rapid.Bool().Draw(t, "early") {
			p.after = p.start - 50e6 - rapid.Int64Range(1, 5*second).Draw(t, "early by")
			p.before = p.after
		}
		observe(&r, placed, permits)
		if _, summary, verdict = Judge(r); verdict != NotHeld || summary.OwnClock.Outside != 1 {
			t.Fatalf("%+v: %q, %+v", *p, verdict, summary.OwnClock)
		}
	})
}

// Where no window is over and no permit outside its window, no span of time has more
// permits that can be placed than the windows that it touches, give or take what clocks
// err: so nothing judges spans by this clock.
func TestNoSpanIsOverWhereNothingIs(t *testing.T) {
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		r := Run{Timeline: Timeline{Changes: []Change{{Limits: perSecond(3)}}, Settle: 3 * time.Second, Slack: placed.Tolerance}, Start: at(0), End: at(4000)}
		var permits []granted
		for range rapid.IntRange(1, 9).Draw(t, "permits") {
			start := rapid.Int64Range(100, 103).Draw(t, "window") * second
			before := start + rapid.Int64Range(-60e6, second+40e6).Draw(t, "asked")
			permits = append(permits, granted{start, before, before + rapid.SampledFrom([]int64{0, 1, 30e6, second}).Draw(t, "held up")})
		}
		observe(&r, placed, permits)
		if _, summary, _ := Judge(r); summary.OverLimitWindows > 0 || summary.OwnClock.Outside > 0 {
			return
		}
		held++
		for _, first := range permits {
			for _, last := range permits {
				came, touched := int64(0), map[int64]bool{}
				for _, p := range permits {
					if place, _ := placed.Place(p.start, p.start+second, p.before, p.after); place == Inside && first.after <= p.after && p.after <= last.after {
						came++
					}
				}
				for k := floorDiv(first.after-50e6, second); k*second <= last.after+50e6; k++ {
					touched[k] = true
				}
				if came > 3*int64(len(touched)) {
					t.Fatalf("%d permits from %d to %d", came, first.after, last.after)
				}
			}
		}
	})
	if held == 0 {
		t.Error("every run was over")
	}
}

// Limiters that are wrong are found though each window that they tell is right.
func TestWrongFleetsAreNotHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(i int64) int64 // of the window that the i-th permit tells
		came  func(i int64) int64
		want  func(OwnSummary) bool
	}{
		{"a clock 1.5 times too fast", // 150 a second
			func(i int64) int64 { return (100 + i/100) * second },
			func(i int64) int64 { return 100*second + i*second/150 },
			func(s OwnSummary) bool { return s.Outside > 0 }},
		{"a flip 100 ms late",
			func(i int64) int64 { return (100 + i/100) * second },
			func(i int64) int64 { return 100*second + i*second/100 + 100e6 },
			func(s OwnSummary) bool { return s.Outside > 0 && s.Outside < 50 }},
		{"a label of the window before",
			func(i int64) int64 { return (99 + i/100) * second },
			func(i int64) int64 { return 100*second + i*second/100 },
			func(s OwnSummary) bool { return s.Outside > 300 }},
	} {
		r := Run{Timeline: Timeline{Changes: []Change{{Limits: perSecond(100)}}, Settle: 3 * time.Second, Slack: placed.Tolerance},
			Fleet: 2, Active: at(0), Start: at(0), End: at(4000)}
		var permits []granted
		for i := int64(0); c.came(i) < at(4000); i++ {
			permits = append(permits, granted{c.start(i), c.came(i), c.came(i) + 1000})
		}
		observe(&r, placed, permits)
		_, summary, verdict := Judge(r)
		if verdict != NotHeld || summary.OverLimitWindows != 0 || !c.want(summary.OwnClock) {
			t.Errorf("%s: %q, %d windows over, %+v", c.name, verdict, summary.OverLimitWindows, summary.OwnClock)
		}
	}
}

// What cannot be judged is unknown, and says why; what is over all the same is not
// held.
func TestWhatIsNotJudgedIsUnknown(t *testing.T) {
	late := &Arrivals{Promised: true, Counts: map[time.Duration][]Count{time.Second: {{Index: 11, Issued: 90, Offered: 28}}}}
	for _, c := range []struct {
		name string
		do   func(*Run)
		want string
	}{
		{"nothing was seen by the own clock", func(r *Run) { r.Own.Came = nil }, "500 of 500 permits were held up, so that they cannot be placed; issued as they came, a window has up to 0 more than it may"},
		{"more than a tenth were held up", func(r *Run) { r.Own.Came[1].Offered = 51 }, "51 of 500 permits were held up, so that they cannot be placed; issued as they came, a window has up to 51 more than it may"},
		{"the clock was set", func(r *Run) { r.Own.Unjudged = "the clock was set" }, "the clock was set"},
		{"a clock was beyond the guard", func(r *Run) { r.Arrivals = &Arrivals{Promised: true, Unjudged: "a clock was off"} }, "a clock was off"},
		{"requests were late", func(r *Run) { r.Arrivals = late }, "28 of 90 requests were late, so that the provider's windows cannot be judged; with them they had up to 0.9000 of the limit"},
		{"no window", func(r *Run) { r.End = r.Start }, "no whole window"},
	} {
		r := steadyRun()
		r.Own = Own{Cell: time.Second, Tolerance: r.Timeline.Slack, Came: slices.Clone(r.Counts)}
		for i := range r.Own.Came {
			r.Own.Came[i].Offered = 0
		}
		if _, _, verdict := Judge(r); verdict != Held {
			t.Fatalf("%q", verdict)
		}
		c.do(&r)
		if _, s, verdict := Judge(r); verdict != Unknown || !strings.Contains(fmt.Sprint(s.Unjudged), c.want) {
			t.Errorf("%s: %q, %q", c.name, verdict, s.Unjudged)
		}
		r.Counts[1].Issued++
		if _, _, verdict := Judge(r); verdict != NotHeld {
			t.Errorf("%s, and over the limit: %q", c.name, verdict)
		}
	}
}

// Arrivals without a guard were never promised to hold: they are no reason not to
// know.
func TestArrivalsThatWereNotPromised(t *testing.T) {
	r := steadyRun()
	r.Arrivals = &Arrivals{Unjudged: "there is no guard", Counts: map[time.Duration][]Count{time.Second: {{Index: 11, Issued: 500}}}}
	if _, _, verdict := judge(r); verdict != Held {
		t.Errorf("%q", verdict)
	}
}
