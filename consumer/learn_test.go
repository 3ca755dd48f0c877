package consumer

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

func limitsOf(t *testing.T, text string) []quota.Limit {
	t.Helper()
	l, err := quota.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l.Learn(limitsOf(t, "1/s")...) // before there is a policy
		s.tell(1, withDefaults(policyOf(t, "100/s,3000/1m")), 1)
		for _, step := range []struct {
			what   string
			after  time.Duration
			states []quota.Limit
			want   string
		}{
			{"nothing", 0, nil, ""},
			{"the policy's own", 0, limitsOf(t, "100/s,3000/1m"), ""},
			{"one is less", 0, limitsOf(t, "80/s,3000/1m"), "80/s"},
			{"of a longer window", 0, []quota.Limit{{Permits: 70, Window: time.Hour}}, "70/s,70/1m"},
			{"of a shorter window", 0, []quota.Limit{{Permits: 50, Window: 2 * time.Second}}, "50/s,70/1m"},
			{"more, too soon", time.Minute, limitsOf(t, "90/s,2900/1m"), "50/s,70/1m"},
			{"none that could be", 0, []quota.Limit{{Permits: 0, Window: time.Second}, {Permits: -1, Window: 1}, {Permits: 1, Window: 0}, {Permits: 1, Window: -1}}, "50/s,70/1m"},
			{"the huge", 0, []quota.Limit{{Permits: math.MaxInt64, Window: 1}, {Permits: math.MaxInt64, Window: math.MaxInt64}}, "50/s,70/1m"},
			{"more", time.Minute, limitsOf(t, "90/s,2900/1m"), "90/s,2900/1m"},
			{"the policy's own again, too soon", time.Minute, limitsOf(t, "200/s,3000/1m"), "90/s,2900/1m"},
			{"the policy's own again", time.Minute, limitsOf(t, "200/s,3000/1m"), ""},
			{"less again", 0, limitsOf(t, "30/s"), "30/s,1800/1m"},
			{"nothing any more", 10*time.Minute - time.Second, nil, "30/s,1800/1m"},
			{"nothing for long", time.Second, nil, ""},
		} {
			time.Sleep(step.after)
			if step.states != nil {
				l.Learn(step.states...)
			}
			if r := s.sink.Report(s.clock.Now()); r.Learned != step.want {
				t.Errorf("%s: %q, want %q", step.what, r.Learned, step.want)
			}
		}
		if below, above := strings.Count(log.String(), "provider states a lower limit"), strings.Count(log.String(), "provider states no lower"); below != 2 || above != 2 {
			t.Errorf("logged:\n%s", log.String())
		}
		l.Learn(limitsOf(t, "60/s,600/1m")...)
		s.tell(2, withDefaults(policyOf(t, "50/s")), 1)
		if got := s.sink.Report(s.clock.Now()).Learned; got != "" {
			t.Errorf("of another policy: %q", got)
		}
		s.tell(3, withDefaults(policyOf(t, "50/s,6000/h")), 1)
		l.Learn(limitsOf(t, "5000/h")...)
		time.Sleep(9 * time.Hour)
		if got := s.sink.Report(s.clock.Now()).Learned; got != "5000/h" {
			t.Errorf("of a long window: %q", got)
		}
	})
}

// Whoever keeps to what follows from a limit gets all that the provider takes over time,
// and nothing follows that is more than is stated for a window of the same length.
func TestWhatFollowsFromAStatedLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := quota.Limit{Permits: rapid.Int64Range(1, 1e6).Draw(t, "permits"), Window: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "window"))}
		own := time.Duration(rapid.Int64Range(int64(quota.MinWindow), int64(quota.MaxWindow)).Draw(t, "own"))
		n := takes(l, own)
		rate, least := float64(l.Permits)/float64(l.Window), float64(n)/float64(own)
		if n < quota.MaxPermits && least < rate*(1-1e-12) || n < l.Permits || own <= l.Window && n != l.Permits {
			t.Errorf("%d per %v of %d per %v", n, own, l.Permits, l.Window)
		}
	})
}
