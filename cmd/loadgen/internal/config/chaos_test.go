package config

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// A seed gives its events, and each that stops something has one that undoes it in the run.
func TestChaosOfASeed(t *testing.T) {
	const duration = 10 * time.Minute
	play := func(seed string) *Config {
		c, err := ParseFlags([]string{"--chaos", "--seed", seed, "--processes", "3", "--duration", duration.String(), "--limit", "3000/s"}, noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := play("7")
	if again := play("7"); !slices.Equal(c.Faults, again.Faults) || !slices.Equal(c.Crashes, again.Crashes) {
		t.Errorf("seed 7 gives %v and %v, and again %v and %v", c.Faults, c.Crashes, again.Faults, again.Crashes)
	}
	if slices.Equal(c.Faults, play("8").Faults) {
		t.Errorf("seeds 7 and 8 give the same: %v", c.Faults)
	}
	stopped := 0
	for _, m := range c.Faults {
		if strings.HasPrefix(m.Text, "kill") || strings.HasPrefix(m.Text, "pause") {
			stopped++
		} else {
			stopped--
		}
		if stopped < 0 || stopped > 1 || m.At >= duration {
			t.Errorf("%v of %v: %d faults at once", m, c.Faults, stopped)
		}
	}
	if stopped != 0 || len(c.Faults) < 10 || len(c.Crashes) == 0 || len(c.Changes) == 0 {
		t.Errorf("%d faults without an end; %v, crashes %v, changes %v", stopped, c.Faults, c.Crashes, c.Changes)
	}
	for _, ch := range c.Changes {
		if n := ch.Limits[0].Permits; n < 1500 || n >= 4500 || ch.Limits[0].Window != time.Second {
			t.Errorf("the limit becomes %v, want 1500/s up to 4500/s", ch.Limits)
		}
	}
}

func TestChaosNeedsTime(t *testing.T) {
	_, err := ParseFlags([]string{"--chaos", "--processes", "3", "--duration", "20s"}, noEnv, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--duration of 20s has no time for an event: use more than 20s") {
		t.Errorf("%v", err)
	}
}
