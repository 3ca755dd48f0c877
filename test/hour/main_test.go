package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A seed gives its events, and each that stops something has one that undoes it in the run.
func TestASeedGivesItsEvents(t *testing.T) {
	t.Parallel()
	const duration = 10 * time.Minute
	all := events(7, duration)
	if !slices.Equal(all, events(7, duration)) || slices.Equal(all, events(8, duration)) {
		t.Errorf("seed 7 gives %q, and again %q; seed 8 %q", all, events(7, duration), events(8, duration))
	}
	stopped, last := 0, time.Duration(0)
	for i := 0; i < len(all); i += 2 {
		at, what, _ := strings.Cut(all[i+1], "=")
		when, err := time.ParseDuration(at)
		if err != nil || when <= last || when >= duration {
			t.Errorf("%q after %v, want it later, and within %v: %v", all[i:i+2], last, duration, err)
		}
		last = when
		if strings.HasPrefix(what, "kill") || strings.HasPrefix(what, "pause") {
			stopped++
		}
		if strings.HasPrefix(what, "restart") || strings.HasPrefix(what, "resume") {
			stopped--
		}
		if stopped < 0 || stopped > 1 {
			t.Errorf("%q: %d faults at once", all[i:i+2], stopped)
		}
	}
	if stopped != 0 || len(all) < 40 {
		t.Errorf("%d faults without an end, and %d events", stopped, len(all)/2)
	}
}

// The table has the windows after an event, and an event without one stands with the next.
func TestTheTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := table(&out, []byte(`{"began": "2026-01-01T00:00:01Z",
		"events": [{"at": "2026-01-01T00:00:02.1Z", "text": "one"}, {"at": "2026-01-01T00:00:02.2Z", "text": "two"}],
		"windows": [
			{"start": "2026-01-01T00:00:00Z", "limit": 10, "issued": 90},
			{"start": "2026-01-01T00:00:01Z", "limit": 10, "issued": 10},
			{"start": "2026-01-01T00:00:02Z", "limit": 10, "issued": 9},
			{"start": "2026-01-01T00:00:03Z", "limit": 10, "issued": 5},
			{"start": "2026-01-01T00:00:04Z", "limit": 10, "issued": 11}]}`))
	want := "| 0 s | the whole fleet is active | 2 | 0 | 90% to 100% |\n| 1 s | one; two | 2 | 1 | 50% to 110% |\n\n"
	if err != nil || !strings.HasSuffix(out.String(), want) {
		t.Errorf("table: %v\n%s", err, out.String())
	}
}
