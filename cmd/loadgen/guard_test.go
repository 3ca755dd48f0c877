package main

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/load"
)

const ms = time.Millisecond

func TestWhichGuardsAreJudged(t *testing.T) {
	for _, c := range []struct {
		guard  guard
		beyond time.Duration
		want   string // of the reason why not; empty: judged
	}{
		{guard{Error: 50 * ms}, 0, "no guard"},
		{guard{Error: 50 * ms, Fixed: 49 * ms}, 0, "49ms does not cover the policy's clock error of 50ms"},
		{guard{Error: 50 * ms, Fixed: 50 * ms}, 0, ""},
		{guard{Error: 50 * ms, Auto: true}, 0, ""},
		{guard{Error: 50 * ms, Auto: true}, 3 * ms, "3ms further"},
	} {
		if got := c.guard.unjudged(c.beyond); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v, %v beyond: %q", c.guard, c.beyond, got)
		}
	}
}

// A clock that is further from the system's than the instance's guard is seen,
// and only that: here clocks are apart by a second, or not at all.
func TestClocksBeyondTheGuardAreSeen(t *testing.T) {
	at := func(apart time.Duration) func() int64 {
		return func() int64 { return time.Now().Add(apart).UnixNano() }
	}
	known := &consumer.Status{ClockError: 30 * ms, ClockErrorKnown: true}
	for _, c := range []struct {
		guard guard
		st    *consumer.Status
		apart time.Duration
		of    time.Duration // the guard
	}{
		{guard{Error: 50 * ms, Fixed: 60 * ms}, known, time.Second, 60 * ms},
		{guard{Error: 50 * ms, Fixed: 60 * ms}, known, 0, 60 * ms},
		{guard{Error: 50 * ms, Auto: true}, known, -time.Second, 30 * ms},
		{guard{Error: 20 * ms, Fixed: 5 * ms, Auto: true}, known, time.Second, 25 * ms},
		{guard{Error: 50 * ms, Auto: true}, &consumer.Status{}, -time.Second, 50 * ms},
	} {
		if got := c.guard.of(c.st); got != c.of {
			t.Errorf("%+v: a guard of %v, want %v", c.guard, got, c.of)
		}
		// The reading of the clock is between two of the system's, so at the most all
		// of the distance is seen; how much less depends on how busy the machine is.
		got := c.guard.exceeded(c.st, at(c.apart))
		if most := c.apart.Abs() - c.of; got > max(0, most) || c.apart == 0 && got != 0 {
			t.Errorf("%+v, %v apart: %v", c.guard, c.apart, got)
		}
	}
	if got := (guard{Error: 50 * ms, Auto: true}).exceeded(known, func() int64 { return 0 }); got < time.Hour {
		t.Errorf("a clock in 1970 is %v beyond the guard", got)
	}
	if got := (guard{Error: 50 * ms}).exceeded(known, func() int64 { return 0 }); got != 0 {
		t.Errorf("without a guard: %v", got)
	}
}

// The provider counts what it is told of permits, and nothing of strangers.
func TestTheProviderCountsPermits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "arrivals")
	listening := make(chan string, 1)
	hour := time.Hour // no request is on the edge of its window, but in 1 of so many runs
	p, err := startProvider(&setup{Window: hour, Lengths: []time.Duration{hour}, Counts: file}, func(r report) {
		if r.Listening != "" {
			listening <- r.Listening
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	address := <-listening
	s := newSender(address)
	past := int64(5 * hour)
	s.send(3, load.Request{Start: past, Asked: past})                  // late
	s.send(2, load.Request{Start: past, Asked: time.Now().UnixNano()}) // for a window that was over
	s.send(1, load.Request{Start: time.Now().UnixNano(), Asked: past}) // of this window
	var sent ended
	s.end(&sent)
	if sent.Sent != 6 || sent.Lost != 0 {
		t.Errorf("%+v", sent)
	}
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a stranger got %s", answer.Status)
	}
	if err := p.obey(order{End: true}); err != nil {
		t.Fatal(err)
	}
	counts, err := countsIn(file)
	if err != nil {
		t.Fatal(err)
	}
	var arrived, late int64
	for _, c := range counts[hour] {
		arrived, late = arrived+c.Issued, late+c.Offered
	}
	if arrived != 6 || late != 3 {
		t.Errorf("%d arrived, %d late", arrived, late)
	}
}

// A verdict by arrivals says so, in the line and in the table.
func TestTooManyArrivalsAreNotHeld(t *testing.T) {
	w, n := windowAt(1, 100, 100), int64(130)
	w.Arrived, w.Late = &n, 20
	s := load.Summary{Arrivals: &load.ArrivalSummary{Judged: true, OverLimitWindows: 1, MaxOverRatio: 1.1, Total: 130, Late: 20}}
	var b bytes.Buffer
	writeTable(&b, []load.Window{w}, 96)
	writeSummary(&b, &s)
	writeVerdict(&b, load.NotHeld, []load.Window{w}, &s)
	for _, want := range []string{"10 too many arrived", "130 requests arrived, 20 of them late; the others by the provider's clock: 1.1000 of the limit at most",
		"NOT HELD: more requests arrived than the limit in 1 of the provider's windows, the worst by a factor of 1.1000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if got := exitStatus(load.NotHeld, nil); got != exitNotHeld {
		t.Errorf("exit %d", got)
	}
}
