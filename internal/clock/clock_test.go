package clock

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestCorrect(t *testing.T) {
	const s, ms, us = int64(time.Second), int64(time.Millisecond), int64(time.Microsecond)
	for _, step := range []struct {
		name                    string
		offset, target, elapsed int64
		want                    int64
	}{
		{"in step", 100 * s, 100 * s, s, 100 * s},
		{"a small lead is taken whole", 100 * s, 100*s + 10*us, s, 100*s + 10*us},
		{"more is slewed at 500 ppm", 100 * s, 100*s + 20*ms, s, 100*s + 500*us},
		{"behind is slewed too", 100 * s, 100*s - 50*ms, s, 100*s - 500*us},
		{"an hour behind is slewed, never stepped", 7200 * s, 3600 * s, 2 * s, 7200*s - 1000*us},
		{"just below the threshold", 100 * s, 100*s + 25*ms - 1, s, 100*s + 500*us},
		{"an hour ahead is stepped", 100 * s, 3700 * s, s, 3700 * s},
	} {
		if next := correct(step.offset, step.elapsed, nil, step.target); next != step.want {
			t.Errorf("%s: offset %d, want %d", step.name, next, step.want)
		}
	}
}

// TestTimeNeverRunsBackwards sets the operating system's clock at random, and
// reads corrected time all along.
func TestTimeNeverRunsBackwards(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := New()
	mono, os, last := int64(0), c.WallAt(0), int64(0)
	for range 100_000 {
		d := rnd.Int64N(int64(3 * time.Second))
		mono += d
		os += d
		if rnd.IntN(10) == 0 {
			os += rnd.Int64N(int64(20*time.Second)) - int64(10*time.Second)
		}
		if wall := c.WallAt(mono); wall < last {
			t.Fatalf("seed %d: corrected time went from %d to %d", seed, last, wall)
		}
		c.Observe(Instant{Mono: mono, Wall: os})
		wall := c.WallAt(mono)
		if wall < last {
			t.Fatalf("seed %d: corrected time went from %d to %d", seed, last, wall)
		}
		// Where time stands still, the offset tells the end of that.
		if back := wall - c.Offset(); back < mono || c.WallAt(back) != wall || c.WallAt(back+1) != wall+1 {
			t.Fatalf("seed %d: the wall time at %d is that of %d", seed, mono, back)
		}
		last = wall
	}
}

func TestALateObservationIsIgnored(t *testing.T) {
	c := New()
	wall := c.WallAt(0)
	c.Observe(Instant{Mono: 10, Wall: wall + 10})
	c.Observe(Instant{Mono: 5, Wall: wall + int64(time.Hour)})
	if c.WallAt(10) != wall+10 || c.Ahead() != 0 {
		t.Errorf("an old observation moved the clock by %d, ahead %v", c.WallAt(10)-wall-10, c.Ahead())
	}
	c.Observe(Instant{Mono: 20, Wall: wall + 20 + int64(time.Hour)})
	if c.WallAt(20) != wall+20+int64(time.Hour) {
		t.Error("a clock an hour ahead was not followed")
	}
	c.Observe(Instant{Mono: 30, Wall: wall + 30})
	if got := c.Ahead(); got > -time.Hour+time.Second {
		t.Errorf("set back by an hour: ahead is %v", got)
	}
}

func TestClocksAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		time.Sleep(1500 * time.Millisecond)
		now := c.Now()
		if now.Mono != int64(1500*time.Millisecond) || now.Mono != c.Mono() {
			t.Errorf("monotonic reading %v and %v, want 1.5s", time.Duration(now.Mono), time.Duration(c.Mono()))
		}
		if c.Wall() != time.Now().UnixNano() || now.Wall != c.Wall() {
			t.Errorf("corrected time %d, want the operating system's %d", c.Wall(), time.Now().UnixNano())
		}
	})
}
