package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestCorrectByAnEstimate(t *testing.T) {
	t.Parallel()
	const s, ms, us = int64(time.Second), int64(time.Millisecond), int64(time.Microsecond)
	for _, step := range []struct {
		name          string
		offset, truth int64
		err           time.Duration
		want          int64
	}{
		{"true", 100 * s, 100 * s, 0, 100 * s},
		{"a little behind", 100 * s, 100*s + 10*ms, 0, 100*s + 500*us},
		{"a little ahead", 100 * s, 100*s - 10*ms, 0, 100*s - 500*us},
		{"behind", 100 * s, 100*s + 25*ms, 0, 100*s + 25*ms},
		{"an hour behind", 100 * s, 3700 * s, 0, 3700 * s},
		{"behind, perhaps", 100 * s, 100*s + 40*ms, 50 * time.Millisecond, 100*s + 500*us},
		{"surely behind", 100 * s, 100*s + 50*ms, 50 * time.Millisecond, 100*s + 50*ms},
		{"ahead, perhaps", 100 * s, 100*s - 40*ms, 50 * time.Millisecond, 100*s - 500*us},
		{"ahead", 100 * s, 100*s - 25*ms, 0, 100*s - 25*ms},
		{"as far ahead as is waited for", 100 * s, 90 * s, 0, 90 * s},
		{"further ahead", 100 * s, 90*s - 1, 0, 100*s - 500*us},
	} {
		e := Estimate{Offset: step.truth, Error: step.err}
		if next := correct(step.offset, s, &e, 0); next != step.want {
			t.Errorf("%s: offset %d, want %d", step.name, next, step.want)
		}
	}
}

func TestTheFirstEstimateIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, -time.Millisecond, 0, time.Minute} {
		c := New()
		truth := c.Offset() + int64(off)
		c.Adopt(Estimate{Mono: 5, Offset: truth, Error: time.Millisecond, Growth: 15})
		if c.Offset() != truth || c.Ahead() != -off || c.Health().Source != SourceNTP {
			t.Errorf("%v off: offset is %v from the truth, ahead %v, source %s", off, time.Duration(c.Offset()-truth), c.Ahead(), c.Health().Source)
		}
	}
}

func TestAnEstimateMovesTimeThatIsInUse(t *testing.T) {
	t.Parallel()
	c := New()
	os := c.Offset()
	see := func(mono time.Duration) { c.Observe(Instant{int64(mono), int64(mono) + os}) }
	see(time.Second)
	c.Adopt(Estimate{Mono: int64(time.Second), Offset: os - int64(3*time.Second), Error: time.Millisecond})
	if bound, ok := c.Measured(); !ok || bound != 3*time.Second+time.Millisecond {
		t.Errorf("before it is corrected the error is %v, %v", bound, ok)
	}
	at := c.WallAt(int64(2 * time.Second))
	see(2 * time.Second)
	if c.Offset() != os-int64(3*time.Second) || c.Ahead() != 3*time.Second {
		t.Fatalf("3 s ahead: offset %v, ahead %v", time.Duration(c.Offset()-os), c.Ahead())
	}
	for _, d := range []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second} {
		if c.WallAt(int64(d)) != at {
			t.Errorf("at %v time has moved by %v", d, time.Duration(c.WallAt(int64(d))-at))
		}
	}
	if got := c.WallAt(int64(6*time.Second)) - at; got != int64(time.Second) {
		t.Errorf("true time has come, a second ago: %v", time.Duration(got))
	}
	if bound, ok := c.Measured(); !ok || bound != time.Millisecond {
		t.Errorf("after it was corrected the error is %v, %v", bound, ok)
	}
	c.Adopt(Estimate{Mono: 1, Offset: os}) // too late
	see(7 * time.Second)
	if c.Ahead() != 3*time.Second {
		t.Errorf("an older estimate was taken: ahead %v", c.Ahead())
	}
}

func TestTheBoundOfTheError(t *testing.T) {
	t.Parallel()
	c := New()
	os := c.Offset()
	if bound, known := c.ErrorAt(0); known || c.Health().Source != SourceSystem {
		t.Errorf("at first: %v, %v, %s", bound, known, c.Health().Source)
	}
	c.Kernel(int64(time.Second), 7*time.Millisecond, true)
	if bound, known := c.ErrorAt(int64(3 * time.Second)); !known || bound != 8*time.Millisecond || c.Health().Source != SourceKernel {
		t.Errorf("by the kernel, 2 s later: %v, %v, %s", bound, known, c.Health().Source)
	}
	if bound, known := c.Measured(); known {
		t.Errorf("measured %v, by nobody", bound)
	}
	c.Kernel(int64(4*time.Second), 0, false)
	if bound, known := c.ErrorAt(int64(4 * time.Second)); known || c.Health().Source != SourceSystem {
		t.Errorf("the daemon has gone: %v, %v, %s", bound, known, c.Health().Source)
	}
	c.Observe(Instant{int64(5 * time.Second), int64(5*time.Second) + os})
	c.Adopt(Estimate{Mono: int64(10 * time.Second), Offset: os + 1000, Error: time.Millisecond, Growth: 100})
	if bound, known := c.ErrorAt(int64(20 * time.Second)); !known || bound != 2*time.Millisecond+1000 {
		t.Errorf("measured, 10 s later: %v, %v", bound, known)
	}
	if bound, known := c.Measured(); !known || bound != time.Millisecond+1000 {
		t.Errorf("measured: %v, %v", bound, known)
	}
	c.Note(Health{Source: SourceSystem, Servers: 3, Answering: 2, Agreeing: 2, Problem: "x"})
	if h := c.Health(); h != (Health{SourceNTP, 3, 2, 2, "x"}) {
		t.Errorf("health %+v", h)
	}
}

// A suspension stops the monotonic clock, and with it what was measured; setting
// the clock does not.
func TestAJumpOfTheSystemClock(t *testing.T) {
	t.Parallel()
	const jump = 40 * time.Second
	for _, test := range []struct {
		name         string
		slept        time.Duration
		known        bool
		offset, grew time.Duration
	}{
		{"the machine slept", jump, true, jump, 0},
		{"somebody set the clock", 0, true, 0, 0},
		{"nobody can tell", 0, false, jump, jump},
	} {
		c := New()
		total := time.Hour
		c.suspended = func() (time.Duration, bool) { return total, test.known }
		c.mu.slept = total
		os := c.Offset()
		c.Observe(Instant{1, 1 + os})
		c.Adopt(Estimate{Mono: 1, Offset: os, Error: time.Millisecond})
		total += test.slept
		c.Observe(Instant{int64(time.Second), int64(time.Second) + os + int64(jump)})
		if got := time.Duration(c.Offset() - os); got != test.offset || c.Jumps() != 1 {
			t.Errorf("%s: corrected time moved by %v, %d jumps; want %v, 1", test.name, got, c.Jumps(), test.offset)
		}
		if bound, _ := c.Measured(); bound != time.Millisecond+test.grew {
			t.Errorf("%s: the error is %v, want %v more than before", test.name, bound, test.grew)
		}
	}
}

// As long as estimates and the rate of the clock keep their bounds, the error
// keeps its own, whatever the operating system's clock does; and time does not
// run back.
func TestTheErrorIsWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const growth = 200 // ppm
		c := New()
		c.suspended = func() (time.Duration, bool) { return 0, true }
		mono, truth := int64(0), c.Offset() // true offset of monotonic time
		os, last := truth, int64(0)
		check := func(at int64, truth int64) {
			wall := c.WallAt(at)
			if wall < last {
				t.Fatalf("time went back by %v", time.Duration(last-wall))
			}
			last = wall
			bound, known := c.ErrorAt(at)
			if off := distance(at+c.Offset(), at+truth); known && off > bound {
				t.Fatalf("off by %v, the bound is %v", off, bound)
			}
		}
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [5]int64 {
			return [5]int64{
				rapid.Int64Range(1e6, 3e9).Draw(t, "elapsed"), rapid.Int64Range(-growth, growth).Draw(t, "drift"),
				rapid.Int64Range(0, 3).Draw(t, "what"), rapid.Int64Range(-2e9, 2e9).Draw(t, "jump"), rapid.Int64Range(0, 1e8).Draw(t, "error"),
			}
		}), 1, 100).Draw(t, "steps")
		for n, s := range steps {
			elapsed, drift, what, jump, err := s[0], s[1], s[2], s[3], s[4]
			mono += elapsed
			truth += elapsed / 1e6 * drift
			if n > 0 {
				check(mono, truth)
			}
			switch what {
			case 0:
				os += jump
			case 1, 2:
				c.Adopt(Estimate{Mono: mono, Offset: truth + jump%(err+1), Error: time.Duration(err), Growth: growth})
			}
			c.Observe(Instant{mono, mono + os})
			if n == 0 {
				last = c.WallAt(mono)
			}
			check(mono, truth)
		}
	})
}

func TestASkewedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewSkewed(func(mono int64) time.Duration {
			if mono >= int64(time.Minute) {
				return -3 * time.Second
			}
			return 5 * time.Second
		})
		if off := time.Duration(c.Wall() - time.Now().UnixNano()); off != 5*time.Second || !c.Skewed() {
			t.Errorf("off by %v", off)
		}
		time.Sleep(time.Minute)
		if off := time.Duration(c.Now().Wall - time.Now().UnixNano()); off != -3*time.Second {
			t.Errorf("off by %v", off)
		}
	})
}
