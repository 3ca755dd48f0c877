package consumer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// All verbs of a handle are calls of its class: critical ones are served before those that
// waited longer.
func TestEveryVerbHasAClass(t *testing.T) {
	bubble(t, policyOf(t, "4/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		critical, sheddable := l.Class(consumer.Critical), l.Class(consumer.Sheddable)
		if l.Class(consumer.Critical) != critical || l.Class("") != l || critical.Class(consumer.Default) != l || l.Class("other") != l {
			t.Error("a limiter has more than one handle of a class")
		}
		l.TryTake(4)
		var log []string
		start := time.Now()
		tell := func(name string) func(consumer.Permit, error) {
			return func(_ consumer.Permit, err error) {
				if err != nil {
					name += " refused"
				}
				log = append(log, name+" "+time.Since(start).Round(time.Millisecond).String())
			}
		}
		sheddable.TakeFunc(4, forever, tell("sheddable"))
		l.TakeFunc(2, forever, tell("default"))
		for range 2 {
			go func() { _ = critical.Wait(ctx) }()
		}
		r := ask(ctx, critical, 2, 5*time.Second)
		critical.TakeFunc(1, forever, tell("critical"))
		synctest.Wait()
		// A sheddable newcomer would have its permit after 4 s. It is the twelfth, and three windows have so
		// many, but the call for four before it does not fit into what is left of the second. To know that, one
		// would have to go along the queue for each refused call.
		if d := []time.Duration{delay(critical, 1), delay(l, 2), delay(sheddable, 1)}; !slices.Equal(d, []time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second}) {
			t.Errorf("delays by class are %v", d)
		}
		time.Sleep(3 * time.Second)
		if a := r.now(); a.err != nil || a.after != time.Second {
			t.Errorf("Take: %v", a)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"critical 2s", "default 2s", "sheddable 3s"}, log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Status counts by class what was issued, given back and refused, and who waits.
func TestStatusCountsByClass(t *testing.T) {
	bubble(t, policyOf(t, "20/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		critical, sheddable := l.Class(consumer.Critical), l.Class(consumer.Sheddable)
		critical.TryTake(3)
		p, err := critical.Take(ctx, 4, 0)
		if err != nil || p.Settle(1) != nil {
			t.Error("a critical call was refused, or cannot be settled")
		}
		if p := sheddable.TryTake(2); !p.Release() {
			t.Error("a sheddable permit cannot be released")
		}
		sheddable.TryAcquire()
		l.TryTake(5)
		sheddable.TryTake(30)
		if sheddable.TryAcquire() || critical.TryAcquire() {
			t.Error("more than 20 permits")
		}
		w := sheddable.TakeFunc(2, forever, func(consumer.Permit, error) {})
		defer w.Stop()
		st := l.Status()
		if diff := cmp.Diff(map[consumer.Class]int64{consumer.Critical: 4, consumer.Default: 5, consumer.Sheddable: 11}, st.IssuedBy); diff != "" {
			t.Errorf("issued (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[consumer.Class]int64{consumer.Critical: 1, consumer.Default: 0, consumer.Sheddable: 21}, st.RefusedOf); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[consumer.Class]int{consumer.Critical: 0, consumer.Default: 0, consumer.Sheddable: 1}, st.WaitingBy); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		sum := int64(0)
		for n := range maps.Values(st.IssuedBy) {
			sum += n
		}
		if sum != st.Issued {
			t.Errorf("%d issued by class, %d in all", sum, st.Issued)
		}
	})
}

// Closing a handle closes the limiter; a place in a full queue goes to a higher class.
func TestHandlesShareQueueAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := consumer.Open(t.Context(), consumer.Fixed(policyOf(t, "1/s")), "p", consumer.Options{MaxWaiters: 1, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		l.TryAcquire()
		low := ask(t.Context(), l.Class(consumer.Sheddable), 1, forever)
		high := ask(t.Context(), l, 1, forever)
		if a := low.now(); !errors.Is(a.err, consumer.ErrQueueFull) || !strings.Contains(a.err.Error(), "displaced by a call of a higher class: 1 wait (Options.MaxWaiters)") || !high.now().never {
			t.Errorf("the lower one: %v, the higher one: %v", a, high.now())
		}
		if err := l.Class(consumer.Critical).Close(); err != nil {
			t.Error(err)
		}
		if a := high.now(); !errors.Is(a.err, consumer.ErrClosed) || l.TryAcquire() || l.Status().State != quota.StateClosed || l.Close() != nil {
			t.Errorf("after the end of a handle: %v", a)
		}
	})
}

// A refusal of one class is none of another.
func TestRefusalsAreOfAClass(t *testing.T) {
	bubble(t, policyOf(t, "4/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		l.TryTake(2)
		l.TakeFunc(4, forever, func(consumer.Permit, error) {})
		for range 2 {
			if l.TryAcquire() {
				t.Error("a default call overtook another")
			}
		}
		if !l.Class(consumer.Critical).TryAcquire() || l.Class(consumer.Critical).TryTake(5).N() != 1 {
			t.Error("a critical call did not get what is held for a default one")
		}
	})
}
