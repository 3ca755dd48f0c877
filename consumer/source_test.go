package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// FixedSource forgot what it had issued when its last limiter was closed.
func TestAFixedSourceForgetsNothing(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/m")
		p.Shape = shape
		synctest.Test(t, func(t *testing.T) {
			source, got := consumer.Fixed(p), int64(0)
			for range 5 {
				l, err := consumer.Open(t.Context(), source, "p", consumer.Options{Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				got += tryTake(l, 10)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got != 10 {
				t.Errorf("%s: %d of 10 issued", shape, got)
			}
			l := open(t, source, consumer.Options{})
			if a := ask(t.Context(), l, 1, 2*time.Minute).within(2 * time.Minute); a.never || a.err != nil || a.after > 61*time.Second {
				t.Errorf("%s: in the next minute: %v", shape, a)
			}
		})
	}
}

var outside = consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}})

// A source that was made outside a bubble has a clock that lies in its future:
// Acquire returned nil without a permit.
func TestASourceFromOutsideTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := consumer.Open(t.Context(), outside, "p", consumer.Options{Logger: quiet})
		if err != nil {
			return // as it should
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := 0
		for range 50 {
			if a := ask(ctx, l, 1, forever).now(); !a.never && a.err == nil {
				got++
			}
		}
		cancel()
		t.Errorf("a limiter whose clock lies in the future: %d permits of 5", got)
	})
}

// nil is an error that names the argument.
func TestNilArguments(t *testing.T) {
	none := context.Context(nil)
	bubble(t, policyOf(t, "10/s"), func(t *testing.T, ctx context.Context, fixed *consumer.FixedSource, l *consumer.Limiter) {
		open := func(ctx context.Context, source consumer.Source) func() error {
			return func() error {
				_, err := consumer.Open(ctx, source, "p", consumer.Options{Logger: quiet})
				return err
			}
		}
		for i, c := range []struct {
			call func() error
			want string
		}{
			{open(ctx, nil), "source is nil"},
			{open(ctx, (*consumer.FixedSource)(nil)), "source is nil"},
			{open(none, fixed), "ctx is nil"},
			{func() error { return l.Acquire(none, 0) }, "ctx is nil"},
			{func() error { return l.Acquire(none, consumer.Forever) }, "ctx is nil"},
			{func() error { return l.Key("a").Acquire(none, 0) }, "ctx is nil"},
			{func() error { return l.Ready(none) }, "ctx is nil"},
		} {
			if err := c.call(); !errors.Is(err, consumer.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("call %d: %v, want ErrInvalid with %q", i, err, c.want)
			}
		}
		l.TakeFunc(10, 0, nil)
		l.TakeFunc(10, time.Second, nil)
		time.Sleep(500 * time.Millisecond)
		if n := tryTake(l, 10); n != 10 {
			t.Errorf("%d of 10 permits are left after requests without a function", n)
		}
	})
}
