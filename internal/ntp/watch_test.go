package ntp

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// network is servers that answer after a while.
type network struct {
	clock *clock.Clock
	mu    sync.Mutex // guards off and asked; never held while waiting
	wait  map[string]time.Duration
	off   map[string]time.Duration // from the time of the bubble; 1h: it is dead
	asked map[string]int
}

func (n *network) ask(ctx context.Context, address string) answer {
	n.mu.Lock()
	n.asked[address]++
	wait, off := n.wait[address], n.off[address]
	n.mu.Unlock()
	if off == time.Hour {
		wait = timeout
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return answer{problem: "ended"}
	}
	if off == time.Hour {
		return answer{problem: "no answer"}
	}
	mono := n.clock.Mono()
	return good(mono, time.Now().UnixNano()-mono+int64(off+wait/2), time.Millisecond+wait/2)
}

func (n *network) set(address string, off time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off[address] = off
}

func (n *network) times(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[address]
}

// watched runs f with a Watch over the servers in a bubble.
func watched(t *testing.T, c *clock.Clock, n *network, servers []string, f func(w *Watch, log func() string)) {
	t.Helper()
	var text bytes.Buffer
	w, err := New(c, servers, 16*time.Second, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n.clock, n.asked = c, map[string]int{}
	w.ask = n.ask
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	f(w, func() string { synctest.Wait(); defer text.Reset(); return text.String() })
	cancel()
	<-done
}

// drive observes the clock as a session does.
func drive(c *clock.Clock, d time.Duration) {
	for end := c.Mono() + int64(d); c.Mono() < end; {
		time.Sleep(300 * time.Millisecond)
		c.Observe(c.Now())
	}
}

func off(c *clock.Clock) time.Duration {
	return time.Duration(c.Offset() + c.Mono() - time.Now().UnixNano())
}

func TestTheFirstVerdictSetsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewSkewed(func(int64) time.Duration { return -7 * time.Second })
		n := &network{
			wait: map[string]time.Duration{"good": 10 * time.Millisecond, "slow": 250 * time.Millisecond},
			off:  map[string]time.Duration{"liar": 300 * time.Millisecond, "dead": time.Hour},
		}
		watched(t, c, n, []string{"liar", "good", "dead", "slow"}, func(w *Watch, log func() string) {
			began := time.Now()
			w.First(t.Context())
			// Two of four that answer at once are no majority, whoever is faster.
			if took := time.Since(began); took < patience || took > patience+lookEvery {
				t.Errorf("the first verdict took %v", took)
			}
			// The good server is 10 ms away, and all of that on one way.
			bound, known := c.ErrorAt(c.Mono())
			if !known || bound < 6*time.Millisecond || bound > 8*time.Millisecond || off(c) < 4*time.Millisecond || off(c) > bound {
				t.Errorf("the clock is off by %v, the bound is %v, %v", off(c), bound, known)
			}
			if h := c.Health(); h != (clock.Health{Source: clock.SourceNTP, Servers: 4, Answering: 3, Agreeing: 2}) {
				t.Errorf("health %+v", h)
			}
			if text := log(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "contradict the majority\" servers=liar") {
				t.Errorf("logged:\n%s", text)
			}
			set := c.Offset()
			drive(c, time.Hour)
			if text := log(); text != "" {
				t.Errorf("logged again:\n%s", text)
			}
			if moved := time.Duration(c.Offset() - set).Abs(); moved > time.Millisecond {
				t.Errorf("corrected again, by %v", moved)
			}
			// 3600 s at 16 s, four of them in a burst; the dead one at 512 s at last.
			if g, d := n.times("good"), n.times("dead"); g < 220 || g > 232 || d < 7 || d > 13 {
				t.Errorf("asked the good server %d times, the dead one %d times", g, d)
			}
		})
	})
}

func TestServersGoAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		n := &network{wait: map[string]time.Duration{}, off: map[string]time.Duration{"a": time.Hour, "b": time.Hour, "c": time.Hour}}
		watched(t, c, n, []string{"a", "b", "c"}, func(w *Watch, log func() string) {
			w.First(t.Context())
			if text := log(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "clock cannot be measured") {
				t.Errorf("logged:\n%s", text)
			}
			if h := c.Health(); h.Source != clock.SourceKernel && h.Source != clock.SourceSystem || !strings.HasPrefix(h.Problem, "no NTP server of 3 answers") {
				t.Errorf("health %+v", h)
			}
			n.set("a", 200*time.Millisecond)
			n.set("b", 201*time.Millisecond)
			drive(c, 20*time.Minute)
			if text := log(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "clock is measured again") {
				t.Errorf("logged:\n%s", text)
			}
			if off(c) < 200*time.Millisecond || off(c) > 201*time.Millisecond {
				t.Errorf("off by %v", off(c))
			}
			// The whole network: the bound grows, and nobody blames the clock.
			n.set("a", time.Hour)
			n.set("b", time.Hour)
			before, _ := c.Measured()
			drive(c, 10*time.Minute)
			after, _ := c.Measured()
			grown, _ := c.ErrorAt(c.Mono())
			if after != before || grown < before+5*time.Millisecond {
				t.Errorf("measured %v, then %v; the bound is %v", before, after, grown)
			}
		})
	})
}

func TestASetClockIsMeasuredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewSkewed(func(mono int64) time.Duration {
			if mono > int64(time.Minute) {
				return 5 * time.Second
			}
			return 0
		})
		n := &network{}
		watched(t, c, n, []string{"a"}, func(w *Watch, _ func() string) {
			w.First(t.Context())
			drive(c, time.Minute)
			before := n.times("a")
			drive(c, 5*time.Second)
			if c.Jumps() != 1 || n.times("a") == before {
				t.Errorf("%d jumps, asked %d times before and %d after", c.Jumps(), before, n.times("a"))
			}
			if d := off(c); d < -time.Millisecond || d > time.Millisecond {
				t.Errorf("off by %v", d)
			}
		})
	})
}

func TestWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		watched(t, c, &network{}, nil, func(w *Watch, log func() string) {
			w.First(t.Context())
			drive(c, time.Minute)
			if h := c.Health(); h.Problem != "" || h.Source == clock.SourceNTP {
				t.Errorf("health %+v", h)
			}
			if text := log(); text != "" {
				t.Errorf("logged:\n%s", text)
			}
		})
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		servers []string
		every   time.Duration
		ok      bool
	}{
		{nil, 0, true},
		{[]string{"a"}, MinInterval, true},
		{[]string{"a", "a"}, 0, false},
		{nil, MinInterval - 1, false},
		{nil, MaxInterval + 1, false},
	} {
		if _, err := New(clock.New(), test.servers, test.every, slog.Default()); (err == nil) != test.ok {
			t.Errorf("%q, %v: %v", test.servers, test.every, err)
		}
	}
}

// TestASleepBeforeTheFirstVerdict: whenever the machine slept, the samples of the time
// before count no more, and the clock is not corrected for the sleep a second time.
func TestASleepBeforeTheFirstVerdict(t *testing.T) {
	const sleep = 100 * time.Millisecond
	for _, known := range []bool{true, false} {
		for when := range 5 { // after so many steps
			step, slept := 0, time.Duration(0)
			read := func() clock.Instant {
				if step == when {
					slept = sleep
				}
				step++
				mono := int64(step) * int64(10*time.Millisecond)
				return clock.Instant{Mono: mono, Wall: mono + int64(slept)}
			}
			c := clock.Started(read(), func() (time.Duration, bool) { return slept, known })
			w, err := New(c, []string{"a", "b"}, 16*time.Second, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for known := false; !known; _, known = c.Measured() {
				at := read()
				questions, next := w.Due(at)
				for at.Mono < next && len(questions) == 0 {
					at = read()
					questions, next = w.Due(at)
				}
				for _, q := range questions {
					at := read()
					w.Answered(at, q, at.Wall-at.Mono, time.Millisecond, "")
				}
			}
			for range 3 {
				c.Observe(read())
			}
			if bound, _ := c.Measured(); (time.Duration(c.Offset()) - sleep).Abs() > bound {
				t.Errorf("slept after %d steps, known %v: off by %v, and said to be by at most %v", when, known, time.Duration(c.Offset())-sleep, bound)
			}
		}
	}
}

// TestAServerOfBeforeASleepVotes: a server whose answer was worth nothing, because the
// machine slept meanwhile, is counted when another one alone answers after that.
func TestAServerOfBeforeASleepVotes(t *testing.T) {
	mono, slept := int64(0), int64(0)
	now := func() clock.Instant {
		mono += int64(time.Millisecond)
		return clock.Instant{Mono: mono, Wall: mono + slept}
	}
	c := clock.Started(now(), nil)
	w, err := New(c, []string{"a", "b", "liar"}, 16*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	asked, _ := w.Due(now())
	slept = int64(100 * time.Millisecond)
	w.Answered(now(), asked[2], 0, 0, "no answer")
	w.Answered(now(), asked[0], 0, time.Millisecond, "")
	w.Answered(now(), asked[1], 0, time.Millisecond, "")
	for asked = nil; len(asked) == 0; {
		mono += int64(time.Second)
		all, _ := w.Due(now())
		asked = slices.DeleteFunc(all, func(q Question) bool { return q.Server != 2 })
	}
	w.Answered(now(), asked[0], int64(time.Minute), time.Millisecond, "")
	if bound, known := c.Measured(); known {
		t.Errorf("one server of three that have answered set the clock, to within %v", bound)
	}
}
