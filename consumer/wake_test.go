package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// The functions of TakeFunc run in order and one by one, those too whose
// arguments were wrong or whose limiter is closed.
func TestFunctionsRunInOrder(t *testing.T) {
	bubble(t, policyOf(t, "2/s"), func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		var ran []int
		running := 0
		f := func(i int) func(consumer.Permit, error) {
			return func(consumer.Permit, error) {
				if running++; running > 1 {
					t.Errorf("function %d runs beside another", i)
				}
				time.Sleep(10 * time.Millisecond)
				ran = append(ran, i)
				running--
			}
		}
		l.TakeFunc(1, 0, f(0))
		l.TakeFunc(0, 0, f(1))
		l.TakeFunc(1, 0, f(2))
		l.TakeFunc(1, 0, f(3))
		l.TakeFunc(-3, time.Second, f(4))
		l.TakeFunc(100, time.Second, f(5))
		l.TakeFunc(0, time.Second, f(6))
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(ran, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("ran in the order %v", ran)
		}
	})
}

// The alarm rang for ever at one instant.
func TestABucketUnderSynctestEnds(t *testing.T) {
	p := policyOf(t, "3000/s")
	p.Shape, p.Burst = quota.ShapeBucket, 30
	bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		for range 100 {
			tryTake(l, 30)
			time.Sleep(delay(l, 1))
			tryTake(l, 30)
			if a := ask(ctx, l, 1, delay(l, 1)).within(time.Second); a.never || a.err != nil {
				t.Error(a)
			}
		}
	})
}

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
