package config

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// Churn has the rate and the part of kills that were asked for, at any time of
// the run, to within one.
func TestChurnKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Config{
			Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, Duration: time.Minute,
			Churn:     rapid.Float64Range(0.01, 100).Draw(t, "churn"),
			churnKill: rapid.Float64Range(0, 1).Draw(t, "kill"),
		}
		killed := 0
		for i, d := range c.Plan() {
			if d.At < 0 || d.At >= c.Duration {
				t.Fatalf("departure %d at %v", i, d.At)
			}
			if d.Kill {
				killed++
			}
			if want := c.Churn * d.At.Seconds(); math.Abs(float64(i)-want) > 1 {
				t.Fatalf("%d departures by %v, want %.1f", i, d.At, want)
			}
			if want := c.churnKill * float64(i+1); math.Abs(float64(killed)-want) > 1 {
				t.Fatalf("%d killed of %d, want %.1f", killed, i+1, want)
			}
		}
		if killed > 0 && c.Victims() < 2 {
			t.Fatalf("%d killed, with %d in processes of their own", killed, c.Victims())
		}
	})
}

func TestHalfIsKilledInTurn(t *testing.T) {
	c := &Config{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, Duration: 3 * time.Second,
		Settle: 3 * time.Second, Churn: 2, churnKill: 0.5}
	for i, d := range c.Plan() {
		want := departure{At: time.Duration(250+500*i) * time.Millisecond, Kill: i%2 == 1}
		if d != want {
			t.Errorf("departure %d: %+v, want %+v", i, d, want)
		}
	}
	if n := c.Victims(); n != 11 { // one a second, each for 10 s, and one more
		t.Errorf("%d victims", n)
	}
}

func TestARollingRestartIsOfEverybodyOnce(t *testing.T) {
	for _, duration := range []time.Duration{time.Second, time.Minute} {
		c := &Config{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, Settle: 3 * time.Second,
			Duration: duration, Instances: 96, Rolling: true, churnKill: 0.5}
		plan := c.Plan()
		if len(plan) != 96 || c.Victims() != 0 {
			t.Fatalf("%d departures, %d victims", len(plan), c.Victims())
		}
		for i, d := range plan {
			if d.Kill || d.At >= duration || i > 0 && d.At <= plan[i-1].At {
				t.Errorf("%v: departure %d: %+v", duration, i, d)
			}
		}
		if last := plan[95].At; duration == time.Minute && last+c.restart() > duration {
			t.Errorf("the last one leaves at %v", last)
		}
	}
}

func TestCrashesAreWhenTheyWereAskedFor(t *testing.T) {
	c := &Config{Crashes: []moment{{At: time.Second}, {At: 3 * time.Second}}}
	if plan := c.Plan(); !slices.Equal(plan, []departure{{At: time.Second, Crash: true}, {At: 3 * time.Second, Crash: true}}) {
		t.Errorf("%+v", plan)
	}
}
