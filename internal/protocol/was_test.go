package protocol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Which limits count on in which windows, as operators replace policies; and which windows of theirs are read.
func TestReplacedLimitsCountOn(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	policy := func(limits string) *quota.Policy {
		t.Helper()
		l, err := quota.ParseLimits(limits)
		if err != nil {
			t.Fatal(err)
		}
		return &quota.Policy{Limits: l, Timing: quota.Timing{Settle: 4 * time.Second, ClockError: 500 * time.Millisecond}}
	}
	const hour = "9/s,50/h"
	var was []Was
	old := policy(hour)
	for _, step := range []struct {
		after  time.Duration // noon
		limits string
		want   []string // limit, length of the windows in which it counts, and until
	}{
		{0, "9/s,70/h", nil},
		{time.Minute, "9/s,70/h@17m", []string{"70/h in 1h0m0s, 12:01:05"}},
		{2 * time.Minute, "9/s,70/h", []string{"70/h@17m in 1h0m0s, 12:02:05", "70/h in 1h0m0s, 12:01:05"}},
		{3 * time.Minute, "9/s,70/2h sliding,90/d", []string{
			"70/h in 1h0m0s, 12:03:05", "70/h in 2h0m0s, 12:03:05", "70/h in 24h0m0s, 12:03:05",
			"70/h@17m in 1h0m0s, 12:02:05", "70/h@17m in 2h0m0s, 12:02:05", "70/h@17m in 24h0m0s, 12:02:05",
		}},
		{5 * time.Hour, "9/s,70/2h sliding,91/d", []string{"70/h in 24h0m0s, 12:03:05", "70/h@17m in 24h0m0s, 12:02:05"}},
		{6 * time.Hour, "9/s", []string{"91/d in 24h0m0s, 18:00:05", "70/2h sliding in 2h0m0s, 18:00:05", "70/h in 24h0m0s, 12:03:05", "70/h@17m in 24h0m0s, 12:02:05"}},
		{100 * time.Hour, "9/s", nil},
	} {
		next := policy(step.limits)
		was = ReplaceLong(was, old, next, noon.Add(step.after))
		old = next
		text, err := EncodeWas(was)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadWas([]byte(text))
		if err != nil || !slices.Equal(read, was) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		var got []string
		for _, w := range was {
			got = append(got, fmt.Sprintf("%v in %v, %s", w.Limit, w.In, time.Unix(0, w.Until).UTC().Format(time.TimeOnly)))
		}
		slices.Sort(got)
		slices.Sort(step.want)
		if !slices.Equal(got, step.want) {
			t.Errorf("after %v: %q, want %q", step.after, got, step.want)
		}
	}
	gone := []Was{{Limit: quota.Limit{Permits: 70, Window: time.Hour}, In: time.Hour, Until: noon.Add(20 * time.Minute).UnixNano()}}
	for _, c := range []struct {
		limit quota.Limit
		at    time.Duration // noon
		want  []string      // starts of windows
	}{
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 16 * time.Minute, []string{"12:00:00", "11:00:00"}},
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 30 * time.Minute, []string{"12:00:00"}},
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 78 * time.Minute, nil},
		{quota.Limit{Window: time.Hour, Sliding: true}, 30 * time.Minute, []string{"12:00:00", "11:00:00"}},
		{quota.Limit{Window: time.Hour, Sliding: true}, 81 * time.Minute, []string{"12:00:00"}},
		{quota.Limit{Window: time.Hour, Sliding: true}, 83 * time.Minute, nil},
		{quota.Limit{Window: time.Hour}, 30 * time.Minute, nil}, // its own total
		{quota.Limit{Window: 2 * time.Hour}, 30 * time.Minute, nil},
	} {
		b := BudgetAt(c.limit, time.UTC, noon.Add(c.at).UnixNano())
		var got []string
		for _, w := range Overlapping(gone, &b, false) {
			got = append(got, time.Unix(0, w.Start).UTC().Format(time.TimeOnly))
		}
		if !slices.Equal(got, c.want) || len(Overlapping(gone, &b, true)) > 0 {
			t.Errorf("%v at noon + %v: %q, want %q", c.limit, c.at, got, c.want)
		}
	}
}

// Calls that are under way count on by another hold, also through a rate and through a deletion; a rate counts no calls.
func TestCallsInFlightCountOn(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var was []Was
	var old *quota.Policy
	through := []string{"5 inflight hold=8m in 8m0s", "5 inflight hold=8m in 20m0s"}
	both := append(slices.Clone(through), "5 inflight hold=20m in 20m0s")
	for i, step := range []struct {
		limits string // empty: the policy is deleted
		want   []string
	}{
		{"9 inflight hold=8m", nil},
		{"5 inflight hold=8m", nil},
		{"5 inflight hold=20m", through},
		{"", both},
		{"9/s,90/h", both},
		{"7 inflight hold=1h", append(slices.Clone(both), "90/h in 1h0m0s", "5 inflight hold=8m in 1h0m0s", "5 inflight hold=20m in 1h0m0s")},
	} {
		var next *quota.Policy
		if step.limits != "" {
			limits, err := quota.ParseLimits(step.limits)
			if err != nil {
				t.Fatal(err)
			}
			next = &quota.Policy{Limits: limits}
		}
		was = ReplaceLong(was, old, next, noon.Add(time.Duration(i)*time.Minute))
		old = next
		var got []string
		for _, w := range was {
			got = append(got, fmt.Sprintf("%v in %v", w.Limit, w.In))
		}
		slices.Sort(got)
		slices.Sort(step.want)
		if !slices.Equal(got, step.want) {
			t.Errorf("%q: %q, want %q", step.limits, got, step.want)
		}
	}
	window := func(text string) Budget {
		limits, err := quota.ParseLimits(text)
		if err != nil {
			t.Fatal(err)
		}
		return BudgetAt(limits[0], time.UTC, noon.Add(6*time.Minute).UnixNano())
	}
	names := func(b Budget) (all []string) {
		for _, w := range Overlapping(was, &b, false) {
			all = append(all, w.Name())
		}
		return all
	}
	if got := names(window("7 inflight hold=1h")); !slices.Equal(got, []string{"20m-inflight", "8m-inflight"}) {
		t.Errorf("a limit in flight counts those of %q", got)
	}
	if got := names(window("90/h")); len(got) > 0 {
		t.Errorf("a rate counts those of %q", got)
	}
}
