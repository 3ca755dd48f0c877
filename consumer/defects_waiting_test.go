package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// Each test of this file reproduces a defect by which somebody waited too long.

// A policy that comes into force later left the limiter without a next edge.
func TestAPolicyThatComesIntoForceLaterIsServed(t *testing.T) {
	for name, replaces := range map[string]bool{"first policy": false, "replaces another": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policyOf(t, "10/s")
				from := time.Now().Add(6 * time.Second)
				var source *consumer.FixedSource
				if replaces {
					source = consumer.Fixed(p)
				} else {
					p.From = from
					source = consumer.Fixed(p)
				}
				l := open(t, source, consumer.Options{})
				if replaces {
					p.From = from
					time.Sleep(500 * time.Millisecond)
					if err := source.Set(p); err != nil {
						t.Fatal(err)
					}
					time.Sleep(4 * time.Second) // what it replaced binds no more
				}
				if st := l.Status(); st.Problem == "" || st.State == quota.StateActive {
					t.Errorf("before it is in force: state %s, problem %q", st.State, st.Problem)
				}
				ready := make(chan time.Time, 1)
				go func() {
					if l.Ready(t.Context()) == nil {
						ready <- time.Now()
					}
				}()
				a := ask(t.Context(), l, 1, forever).within(20 * time.Second)
				if at := time.Now(); a.never || a.err != nil || !at.Equal(from) {
					t.Errorf("%v at %v, want granted when it comes into force, at %v", a, at, from)
				}
				synctest.Wait()
				select {
				case at := <-ready:
					if !at.Equal(from) {
						t.Errorf("ready at %v, want %v", at, from)
					}
				default:
					t.Error("not ready")
				}
				if n := tryTake(l, 100); n != 9 {
					t.Errorf("%d more, want 9", n)
				}
			})
		})
	}
}

// Pacing even: a request for more than one release was never served.
func TestPacingServesRequestsForMoreThanOneRelease(t *testing.T) {
	for _, c := range []struct {
		limit string
		n     int64
	}{{"1000/s", 17}, {"60/s", 2}, {"10/s", 3}, {"1000/s", 1000}} {
		p := policyOf(t, c.limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			time.Sleep(350 * time.Millisecond)
			foretold := delay(l, c.n)
			if foretold > 2*time.Second {
				t.Errorf("%s: Delay(%d) is %v", c.limit, c.n, foretold)
			}
			if a := ask(ctx, l, c.n, 2*time.Second).within(3 * time.Second); a.never || a.err != nil || a.after > foretold+slice {
				t.Errorf("%s: %d permits: %v, foretold was %v", c.limit, c.n, a, foretold)
			}
			if a := ask(ctx, l, 1, 2*time.Second).within(3 * time.Second); a.never || a.err != nil {
				t.Errorf("%s: one permit after them: %v", c.limit, a)
			}
		})
	}
}

// slice is the time in which pacing releases permits together.
const slice = 10 * time.Millisecond

// Of callers that keep asking, all of the limit is issued, also if some want
// many at once.
func TestPacingWastesNothing(t *testing.T) {
	for _, c := range []struct {
		name, limit string
		callers     int
		size        func(r *rand.Rand) int64
		most        float64 // lost
	}{
		{"one caller in a loop", "20/s", 1, func(*rand.Rand) int64 { return 1 }, 0},
		{"5% large", "1000/s", 40, func(r *rand.Rand) int64 {
			if r.IntN(20) == 0 {
				return 17
			}
			return 1
		}, 0.017},
		{"two at once", "60/s", 4, func(*rand.Rand) int64 { return 2 }, 0.02},
	} {
		p := policyOf(t, c.limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			ctx, cancel := context.WithCancel(ctx)
			for i := range c.callers {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				go func() {
					for take(ctx, l, c.size(r), forever) == nil {
					}
				}()
			}
			time.Sleep(2 * time.Second)
			before := l.Status().Issued
			time.Sleep(10 * time.Second)
			used := float64(l.Status().Issued-before) / float64(10*p.Limits[0].Permits)
			if used < 1-c.most {
				t.Errorf("%s: %.3f of the limit issued", c.name, used)
			}
			cancel()
		})
	}
}

// Callers that never wait get all of a paced limit if they try often enough.
func TestPacingServesThoseThatNeverWait(t *testing.T) {
	p := policyOf(t, "100/s")
	p.Pacing = quota.PacingEven
	bubble(t, p, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		got := 0
		for range 5000 {
			if time.Sleep(time.Millisecond); l.TryAcquire() {
				got++
			}
		}
		if got < 495 {
			t.Errorf("%d of 500 in 5 s", got)
		}
	})
}

// Whoever comes seldom finds a permit that is long due.
func TestPacingServesThoseThatComeSeldom(t *testing.T) {
	p := policyOf(t, "10/s")
	p.Pacing = quota.PacingEven
	bubble(t, p, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		for _, pause := range []time.Duration{1370 * time.Millisecond, 370 * time.Millisecond, 2100 * time.Millisecond} {
			got := 0
			for range 100 {
				if time.Sleep(pause); l.TryAcquire() {
					got++
				}
			}
			// It may come before the first permit of its window.
			if got < 80 {
				t.Errorf("every %v: %d of 100, and 10 a second are allowed", pause, got)
			}
		}
	})
}

// Far deadlines overflowed.
func TestAFarDeadlineIsFarAway(t *testing.T) {
	bubble(t, policyOf(t, "1/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		time.Sleep(time.Millisecond)
		for name, until := range map[string]func() (context.Context, context.CancelFunc, time.Duration){
			"timeout of 292 years": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithTimeout(ctx, math.MaxInt64)
				return c, f, forever
			},
			"year 9999": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithDeadline(ctx, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
				return c, f, forever
			},
			"maxWait of 292 years": func() (context.Context, context.CancelFunc, time.Duration) { return ctx, func() {}, math.MaxInt64 },
			"nearly that much":     func() (context.Context, context.CancelFunc, time.Duration) { return ctx, func() {}, math.MaxInt64 - 1 },
			"year 9999 and a minute": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithDeadline(ctx, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
				return c, f, time.Minute
			},
		} {
			tryTake(l, 1)
			c, cancel, maxWait := until()
			if a := ask(c, l, 1, maxWait).within(3 * time.Second); a.never || a.err != nil {
				t.Errorf("%s: %v", name, a)
			}
			cancel()
		}
		// TakeFunc too.
		tryTake(l, 1)
		result := make(chan error, 1)
		l.TakeFunc(1, math.MaxInt64-1, func(_ consumer.Permit, err error) { result <- err })
		if err := <-result; err != nil {
			t.Error(err)
		}
		for _, end := range []time.Time{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
			pauseUntil(l, end)
			e, ok := limitError(takeNow(l, 1))
			if !ok || e.Reason != consumer.ReasonPause || !e.RetryAt.IsZero() && e.RetryAt.Before(time.Now().Add(time.Hour)) {
				t.Errorf("paused until %v: %+v, retry at %v", end, e, e.RetryAt)
			}
			r := ask(ctx, l, 1, forever)
			if a := r.within(time.Minute); !a.never {
				t.Errorf("paused until %v: %v", end, a)
			}
			l.Resume()
		}
		if a := ask(ctx, l, 1, time.Second).within(time.Second); a.never || a.err != nil {
			t.Errorf("the pause has ended: %v", a)
		}
	})
}

// The head of the queue left, and the next in line waited for the time that was
// set for it.
func TestWhenTheHeadLeavesTheNextIsServedInTime(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		for _, how := range []string{"cancel", "stop", "close", "release"} {
			t.Run(fmt.Sprint(shape, " ", how), func(t *testing.T) {
				p := policyOf(t, "10/10s")
				p.Shape = shape
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					source := consumer.Fixed(p)
					l, other := open(t, source, consumer.Options{}), open(t, source, consumer.Options{})
					if n := tryTake(l, 1); n != 1 {
						t.Fatal("nothing to take")
					}
					time.Sleep(500 * time.Millisecond)
					kept, err := l.Take(ctx, 9, 0)
					if err != nil {
						t.Fatal(err)
					}
					// The head wants most of it, which takes most of a window.
					var head *request
					var place consumer.Waiter
					switch how {
					case "stop":
						place = l.TakeFunc(8, forever, func(consumer.Permit, error) {})
					case "close":
						head = ask(ctx, other, 8, forever)
					default:
						head = ask(ctx, l, 8, forever)
					}
					next := ask(ctx, l, 1, forever)
					due := map[quota.Shape]time.Duration{quota.ShapeFixed: 9500 * time.Millisecond, quota.ShapeSliding: 9600 * time.Millisecond, quota.ShapeBucket: 600 * time.Millisecond}[shape]
					time.Sleep(100 * time.Millisecond)
					switch how {
					case "cancel":
						head.cancel()
					case "stop":
						if !place.Stop() {
							t.Error("Stop is false")
						}
					case "close":
						if err := other.Close(); err != nil {
							t.Error(err)
						}
						if a := head.now(); !errors.Is(a.err, consumer.ErrClosed) {
							t.Errorf("the head: %v", a)
						}
					case "release":
						due = 110 * time.Millisecond // both are served now
						if !release(l, kept) {
							t.Error("Release is false")
						}
					}
					if a := next.within(20 * time.Second); a.never || a.err != nil || a.after > due {
						t.Errorf("the next: %v, due after %v", a, due)
					}
				})
			})
		}
	}
}

// What cannot be had is refused at once, and stops nobody behind it.
func TestWhatCannotBeHadIsRefusedAtOnce(t *testing.T) {
	divided, warm := policyOf(t, "1000/s"), policyOf(t, "30/s")
	divided.Lend = "off"
	warm.WarmUp = time.Hour
	for _, c := range []struct {
		name      string
		policy    quota.Policy
		instances int
		n         int64
	}{{"more than a tenth of the total", divided, 10, 500}, {"more than an instance that warms up has", warm, 1, 30}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l := open(t, fleet(t, c.policy, c.instances).Instances()[0], consumer.Options{})
			time.Sleep(1300 * time.Millisecond)
			if d := delay(l, c.n); d != math.MaxInt64 {
				t.Errorf("%s: Delay is %v", c.name, d)
			}
			a := ask(ctx, l, c.n, forever).now()
			if a.never || !errors.Is(a.err, consumer.ErrTooLarge) {
				t.Errorf("%s: %v, want ErrTooLarge at once", c.name, a)
			}
			if a := ask(ctx, l, 1, 2*time.Second).within(3 * time.Second); a.never || a.err != nil {
				t.Errorf("%s: the next: %v", c.name, a)
			}
			if err := takeNow(l, c.n); !errors.Is(err, consumer.ErrTooLarge) {
				t.Errorf("%s: without waiting: %v, want ErrTooLarge", c.name, err)
			}
			cancel()
		})
	}
}

// A request that fitted when it came, and fits no more by a limit that was
// announced, stops nobody behind it.
func TestAnAnnouncedLimitRefusesWhatItCannotHold(t *testing.T) {
	p := policyOf(t, "10/s")
	p.Next = []quota.LimitChange{{From: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), Limits: policyOf(t, "5/s").Limits}}
	bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		tryTake(l, 10)
		time.Sleep(600 * time.Millisecond)
		head, next := ask(ctx, l, 8, forever), ask(ctx, l, 1, forever)
		if a := next.within(5 * time.Second); a.never || a.err != nil || a.after > 400*time.Millisecond {
			t.Errorf("the next: %v", a)
		}
		if a := head.now(); a.never || !errors.Is(a.err, consumer.ErrTooLarge) {
			t.Errorf("the head: %v, want ErrTooLarge", a)
		}
	})
}

// Shadow mode lets every call pass.
func TestShadowLetsEveryCallPass(t *testing.T) {
	shadow := func(p quota.Policy) quota.Policy { p.Mode = quota.ModeShadow; return p }
	t.Run("each kind of call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, consumer.Fixed(shadow(policyOf(t, "10/s"))), consumer.Options{MaxWaiters: 1})
			for _, n := range []int64{10, 1, 1, 11, 1000} { // spent after the first
				result := make(chan error, 1)
				l.TakeFunc(n, time.Second, func(_ consumer.Permit, err error) { result <- err })
				synctest.Wait()
				select {
				case err := <-result:
					if err != nil {
						t.Errorf("TakeFunc(%d): %v", n, err)
					}
				default:
					t.Errorf("TakeFunc(%d) waits", n)
				}
				for _, maxWait := range []time.Duration{0, time.Second, forever} {
					if a := ask(t.Context(), l, n, maxWait).now(); a.never || a.err != nil {
						t.Errorf("Take(%d, %v): %v", n, maxWait, a)
					}
				}
			}
			if !l.TryAcquire() || tryTake(l, 77) != 77 {
				t.Error("refused")
			}
		})
	})
	t.Run("those that waited before", func(t *testing.T) {
		bubble(t, policyOf(t, "10/m"), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			tryTake(l, 10)
			first, second := ask(ctx, l, 3, forever), make(chan error, 1)
			l.TakeFunc(2, forever, func(_ consumer.Permit, err error) { second <- err })
			time.Sleep(time.Second)
			if err := source.Set(shadow(policyOf(t, "10/m"))); err != nil {
				t.Fatal(err)
			}
			if a := first.now(); a.never || a.err != nil {
				t.Errorf("Take: %v", a)
			}
			select {
			case err := <-second:
				if err != nil {
					t.Errorf("TakeFunc: %v", err)
				}
			default:
				t.Error("TakeFunc waits")
			}
			if st := l.Status(); st.Waiting != 0 {
				t.Errorf("%d wait", st.Waiting)
			}
		})
	})
	t.Run("after Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			i := fleet(t, shadow(policyOf(t, "10/s")), 1).Instances()[0]
			l := open(t, i, consumer.Options{})
			i.Kill()
			for range 20 {
				if err := takeNow(l, 1); !errors.Is(err, consumer.ErrClosed) {
					t.Errorf("the source is closed: %v", err)
				}
				if l.TryAcquire() || tryTake(l, 1) > 0 {
					t.Error("the source is closed, and there is a permit")
				}
			}
			if a := ask(t.Context(), l, 1, forever).now(); a.never || !errors.Is(a.err, consumer.ErrClosed) {
				t.Errorf("the source is closed: %v", a)
			}
		})
	})
	t.Run("a permit that passed is none to release", func(t *testing.T) {
		for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
			policy := policyOf(t, "10/m")
			policy.Shape = shape
			bubble(t, shadow(policy), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
				tryTake(l, 10)
				p, err := l.Take(ctx, 1, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := source.Set(policy); err != nil {
					t.Fatal(err)
				}
				if release(l, p) {
					t.Errorf("%s: taken back", shape)
				}
				if n := tryTake(l, 100); n != 0 {
					t.Errorf("%s: %d of 10 issued", shape, 10+n)
				}
			})
		}
	})
}

// Ready was told late.
func TestReadyIsToldInTime(t *testing.T) {
	t.Run("after an outage under stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &told{clock: clock.New()}
			l := open(t, feed.Over[feed.Source](s), consumer.Options{})
			p := policyOf(t, "10/s")
			p.Outage = quota.OutageStop
			s.start(p, 2)
			time.Sleep(10 * time.Second)
			ready := waitReady(t.Context(), l)
			time.Sleep(5500 * time.Millisecond)
			s.prove()
			if !l.TryAcquire() {
				t.Error("no permit after the outage")
			}
			ready.returned(t, nil, "a permit was issued")
		})
	})
	t.Run("of its limiter's end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := policyOf(t, "10/s")
			p.Mode = quota.ModePause
			source := consumer.Fixed(p)
			l := open(t, source, consumer.Options{})
			open(t, source, consumer.Options{})
			ready := waitReady(t.Context(), l)
			time.Sleep(1300 * time.Millisecond)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			ready.returned(t, consumer.ErrClosed, "the limiter is closed")
		})
	})
	t.Run("of its source's end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := policyOf(t, "10/s")
			p.Mode = quota.ModePause
			i := fleet(t, p, 1).Instances()[0]
			l := open(t, i, consumer.Options{})
			ready := waitReady(t.Context(), l)
			time.Sleep(1300 * time.Millisecond)
			i.Kill()
			ready.returned(t, consumer.ErrClosed, "the source is closed")
		})
	})
	t.Run("of the first proof", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &told{clock: clock.New()}
			l := open(t, feed.Over[feed.Source](s), consumer.Options{})
			s.begin(policyOf(t, "10/s"), 1)
			ready := waitReady(t.Context(), l)
			time.Sleep(1300 * time.Millisecond)
			s.prove()
			ready.returned(t, nil, "the view is proved")
		})
	})
	t.Run("of the end of a pause", func(t *testing.T) {
		bubble(t, policyOf(t, "10/s"), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			for _, c := range []struct {
				pause, after time.Duration
				end          func()
			}{
				{time.Hour, 500 * time.Millisecond, func() { l.Resume() }},
				{time.Hour, 700 * time.Millisecond, func() { l.Resume() }},
				{600 * time.Millisecond, 600 * time.Millisecond, func() {}},
			} {
				pauseUntil(l, time.Now().Add(c.pause))
				ready := waitReady(ctx, l)
				time.Sleep(c.after)
				c.end()
				ready.returned(t, nil, "the pause has ended")
			}
		})
	})
	t.Run("of shadow mode", func(t *testing.T) {
		p := policyOf(t, "10/s")
		p.Mode = quota.ModePause
		bubble(t, p, func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			ready := waitReady(ctx, l)
			time.Sleep(500 * time.Millisecond)
			p.Mode = quota.ModeShadow
			if err := source.Set(p); err != nil {
				t.Fatal(err)
			}
			ready.returned(t, nil, "shadow mode lets every call pass")
		})
	})
}

// readyCall is a call of Ready on a goroutine; its answer comes through the
// channel.
type readyCall chan error

func waitReady(ctx context.Context, l *consumer.Limiter) readyCall {
	c := make(readyCall, 1)
	go func() { c <- l.Ready(ctx) }()
	return c
}

// returned sees that the call has returned by now, with the error want.
func (c readyCall) returned(t *testing.T, want error, message string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-c:
		if !errors.Is(err, want) {
			t.Errorf("Ready: %v, want %v", err, want)
		}
	default:
		t.Errorf("Ready waits: %s", message)
	}
}

// A spent long window, or a pause, of more than 64 edges made Delay Forever.
func TestDelayIsKnownBeyondManyEdges(t *testing.T) {
	pause := func(d time.Duration) func(l *consumer.Limiter) {
		return func(l *consumer.Limiter) { pauseUntil(l, time.Now().Add(d)) }
	}
	for name, c := range map[string]struct {
		limits string
		pacing quota.Pacing
		shut   func(l *consumer.Limiter)
		most   time.Duration // that Delay may be later than a minute
	}{
		"a pause":               {"10/100ms", quota.PacingOff, pause(time.Minute), 0},
		"a pause, paced":        {"10/100ms,10000/1m", quota.PacingEven, pause(time.Minute), 2 * slice},
		"a minute spent":        {"10/100ms,8/1m", quota.PacingOff, func(l *consumer.Limiter) { tryTake(l, 8) }, 0},
		"a minute spent, pause": {"10/100ms,8/1m", quota.PacingOff, func(l *consumer.Limiter) { tryTake(l, 8); pause(30 * time.Second)(l) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, c.limits)
			p.Pacing = c.pacing
			bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
				c.shut(l)
				time.Sleep(50 * time.Millisecond)
				for range 3 { // and it stays known from edge to edge
					d, left := delay(l, 1), time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC))
					if d < left || d > left+c.most {
						t.Fatalf("Delay is %v, want %v", d, left)
					}
					if a := ask(ctx, l, 1, d-1).within(0); !errors.Is(a.err, consumer.ErrLimited) {
						t.Errorf("with too short a maxWait: %v, want ErrLimited at once", a)
					}
					if a := ask(ctx, l, 1, d); a.within(0).err != nil {
						t.Errorf("a maxWait of Delay: %v, want to wait", a.within(0))
					}
					time.Sleep(10 * time.Second)
				}
				d := delay(l, 1)
				if a := ask(ctx, l, 1, d).within(2 * d); a.never || a.err != nil || a.after > d {
					t.Errorf("%v, foretold was %v", a, d)
				}
			})
		})
	}
}
