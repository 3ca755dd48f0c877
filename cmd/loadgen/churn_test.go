package main

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// Churn has the rate and the part of kills that were asked for, at any time of
// the run, to within one.
func TestChurnKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &config{
			limits: []quota.Limit{{Permits: 1, Window: time.Second}}, duration: time.Minute,
			churn:     rapid.Float64Range(0.01, maxChurn).Draw(t, "churn"),
			churnKill: rapid.Float64Range(0, 1).Draw(t, "kill"),
		}
		killed := 0
		for i, d := range c.plan() {
			if d.at < 0 || d.at >= c.duration {
				t.Fatalf("departure %d at %v", i, d.at)
			}
			if d.kill {
				killed++
			}
			if want := c.churn * d.at.Seconds(); math.Abs(float64(i)-want) > 1 {
				t.Fatalf("%d departures by %v, want %.1f", i, d.at, want)
			}
			if want := c.churnKill * float64(i+1); math.Abs(float64(killed)-want) > 1 {
				t.Fatalf("%d killed of %d, want %.1f", killed, i+1, want)
			}
		}
		if killed > 0 && c.victims() < 2 {
			t.Fatalf("%d killed, with %d in processes of their own", killed, c.victims())
		}
	})
}

func TestHalfIsKilledInTurn(t *testing.T) {
	c := &config{limits: []quota.Limit{{Permits: 1, Window: time.Second}}, duration: 3 * time.Second,
		settle: 3 * time.Second, churn: 2, churnKill: 0.5}
	for i, d := range c.plan() {
		want := departure{at: time.Duration(250+500*i) * time.Millisecond, kill: i%2 == 1}
		if d != want {
			t.Errorf("departure %d: %+v, want %+v", i, d, want)
		}
	}
	if n := c.victims(); n != 11 { // one a second, each for 10 s, and one more
		t.Errorf("%d victims", n)
	}
}

func TestARollingRestartIsOfEverybodyOnce(t *testing.T) {
	for _, duration := range []time.Duration{time.Second, time.Minute} {
		c := &config{limits: []quota.Limit{{Permits: 1, Window: time.Second}}, settle: 3 * time.Second,
			duration: duration, instances: 96, rolling: true, churnKill: 0.5}
		plan := c.plan()
		if len(plan) != 96 || c.victims() != 0 {
			t.Fatalf("%d departures, %d victims", len(plan), c.victims())
		}
		for i, d := range plan {
			if d.kill || d.at >= duration || i > 0 && d.at <= plan[i-1].at {
				t.Errorf("%v: departure %d: %+v", duration, i, d)
			}
		}
		if last := plan[95].at; duration == time.Minute && last+c.restart() > duration {
			t.Errorf("the last one leaves at %v", last)
		}
	}
}
