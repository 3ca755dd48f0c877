package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

func TestAcquireWaitsForTheNextWindowInOrder(t *testing.T) {
	bubble(t, "2/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		start := time.Now()
		var mu sync.Mutex
		var log []string
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if err := l.Acquire(ctx, Forever); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%d@%v", i/2, time.Since(start)))
			})
			synctest.Wait()
		}
		wg.Wait()
		want := []string{"0@0s", "0@0s", "1@1s", "1@1s", "2@2s"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("who was served when (-want +got):\n%s", diff)
		}
	})
}

func TestMaxWaitIsDecidedBeforeWaiting(t *testing.T) {
	bubble(t, "1/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		start := time.Now()
		l.TryAcquire()
		if err := l.Acquire(ctx, 900*time.Millisecond); !errors.Is(err, ErrLimited) {
			t.Errorf("the next window is too far: %v, want ErrLimited", err)
		}
		short, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
		defer cancel()
		err := l.Acquire(short, Forever)
		var limited LimitError
		if !errors.As(err, &limited) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the context ends too early: %v, want a LimitError", err)
		}
		want := LimitError{Provider: "p", Asked: 1, Total: 1, Share: 1, Instances: 1, Reason: ReasonSpent,
			Window: quota.WindowAt(time.Second, start.UnixNano()), RetryAt: start.Add(time.Second)}
		if diff := cmp.Diff(want, limited, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("refusals took %v", d)
		}
		if d := l.Delay(1); d != time.Second {
			t.Errorf("delay is %v, want 1s", d)
		}
		if err := l.Acquire(ctx, time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v, want a permit after 1s", time.Since(start), err)
		}
	})
}

func TestCancelledWaitSpendsNothing(t *testing.T) {
	bubble(t, "1/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		l.TryAcquire()
		cancelled, cancel := context.WithCancel(ctx)
		result := make(chan error)
		for range 3 {
			go func() { result <- l.Acquire(cancelled, Forever) }()
		}
		synctest.Wait()
		start := time.Now()
		cancel()
		for range 3 {
			if err := <-result; err != context.Canceled { //nolint:errorlint // must be the very error
				t.Errorf("%v, want context.Canceled itself", err)
			}
		}
		if err := l.Acquire(ctx, Forever); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v, want the permit of the next window", time.Since(start), err)
		}
		if err := l.Acquire(cancelled, Forever); err != context.Canceled { //nolint:errorlint // must be the very error
			t.Errorf("%v, want context.Canceled", err)
		}
	})
}

func TestBadArguments(t *testing.T) {
	bubble(t, "10/s", Options{MaxWaiters: 1}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		for _, c := range []struct {
			n       int64
			maxWait time.Duration
			want    error
			text    string
		}{
			{0, 0, ErrInvalid, "0 permits"},
			{-3, Forever, ErrInvalid, "-3 permits"},
			{11, Forever, ErrTooLarge, "11 permits asked for, the limit is 10/s"},
			{11, 0, ErrTooLarge, "11 permits asked for, the limit is 10/s"},
			{11, -2, ErrTooLarge, "11 permits asked for, the limit is 10/s"},
		} {
			err := take(ctx, l, c.n, c.maxWait)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Take(%d, %v): %v, want %v with %q", c.n, c.maxWait, err, c.want, c.text)
			}
			if large, ok := errors.AsType[TooLargeError](err); ok && (large != TooLargeError{Provider: "p", Asked: c.n, Largest: l.Status().Largest, Limit: quota.Limit{Permits: 10, Window: time.Second}} || large.Largest != 10) {
				t.Errorf("Take(%d, %v): %+v, and the status says at most %d", c.n, c.maxWait, large, l.Status().Largest)
			} else if ok != (c.want == ErrTooLarge) { //nolint:errorlint // of the table
				t.Errorf("Take(%d, %v): %T", c.n, c.maxWait, err)
			}
			told := make(chan error, 1)
			if c.maxWait != 0 {
				l.TakeFunc(c.n, c.maxWait, func(_ Permit, err error) { told <- err })
				if err := <-told; !errors.Is(err, c.want) {
					t.Errorf("TakeFunc(%d, %v): %v, want %v", c.n, c.maxWait, err, c.want)
				}
			}
		}
		if n := l.TryTake(0).N(); n != 0 {
			t.Errorf("TryTake(0).N() is %d", n)
		}
		l.TryTake(100).N()
		go l.Acquire(ctx, Forever) //nolint:errcheck // only to fill the queue
		synctest.Wait()
		if err := l.Acquire(ctx, Forever); !errors.Is(err, ErrQueueFull) {
			t.Errorf("%v, want ErrQueueFull", err)
		}
	})
	if _, err := Open(t.Context(), Fixed(quota.Policy{}), "p", Options{}); err == nil {
		t.Error("a policy without limits was taken")
	}
	good := Fixed(policyOf(t, "1/s"))
	if _, err := Open(t.Context(), good, "a//b", Options{}); err == nil {
		t.Error("a bad provider name was taken")
	}
	if _, err := Open(t.Context(), good, "p", Options{MaxWaiters: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("MaxWaiters -1: %v, want ErrInvalid", err)
	}
}

func TestCloseTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := Fixed(policyOf(t, "1/s"))
		a, b := open(t, source, Options{}), open(t, source, Options{})
		a.TryAcquire()
		if b.TryAcquire() {
			t.Error("two limiters of one provider have two counters")
		}
		result := make(chan string)
		wait := func(name string, l *Limiter) {
			err := l.Acquire(context.Background(), Forever)
			result <- fmt.Sprint(name, " ", errors.Is(err, ErrClosed), " ", err == nil)
		}
		go wait("a", a)
		synctest.Wait()
		go wait("b", b)
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if got := <-result; got != "a true false" {
			t.Errorf("%q, want a to get ErrClosed", got)
		}
		if got := <-result; got != "b false true" {
			t.Errorf("%q, want b to be served", got)
		}
		for _, err := range []error{a.Acquire(t.Context(), 0), a.Acquire(t.Context(), Forever), a.Ready(t.Context())} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		}
		if a.TryAcquire() || a.TryTake(5).N() != 0 || a.Status().State != quota.StateClosed {
			t.Error("a closed limiter works")
		}
		if err := a.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestRelease(t *testing.T) {
	bubble(t, "5/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		p, err := l.Take(ctx, 3, 0)
		if err != nil || p.N() != 3 {
			t.Fatal(p, err)
		}
		q, _ := l.Take(ctx, 2, 0)
		if !p.Release() || p.Release() || (Permit{}).Release() {
			t.Error("a permit can be returned once, and only if it was issued")
		}
		if got := l.TryTake(100).N(); got != 3 {
			t.Errorf("%d permits after 3 were returned", got)
		}
		time.Sleep(time.Second)
		if q.Release() {
			t.Error("a permit was returned after its window")
		}
		if st := l.Status(); st.Issued != 5 {
			t.Errorf("issued %d in all, want 5: 3+2-3+3", st.Issued)
		}
	})
}

// A refusal is not made again for all calls of a segment, until permits come back into it: the next one then asks others
// anew.
func TestAReleaseForgetsRefusals(t *testing.T) {
	bubble(t, "1/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		k := l.core
		p, _ := l.Take(ctx, 1, 0)
		l.TryAcquire()
		s := k.gate.Segment()
		if k.refusedIn(s, 1, l.class) == nil {
			t.Error("the refusal is not kept")
		}
		if !p.Release() || k.gate.Segment() != s || k.refusedIn(s, 1, l.class) != nil {
			t.Error("the refusal is kept though a permit has come back")
		}
	})
}

func TestLimitChanges(t *testing.T) {
	bubble(t, "10/s", Options{}, func(t *testing.T, _ context.Context, source *FixedSource, l *Limiter) {
		set := func(limits string) {
			if err := source.Set(policyOf(t, limits)); err != nil {
				t.Fatal(err)
			}
		}
		drain := func() (got []int64) {
			for range 5 {
				got = append(got, l.TryTake(1000).N())
				time.Sleep(time.Second)
			}
			return got
		}
		l.TryTake(2).N()
		set("5/s")
		if diff := cmp.Diff([]int64{3, 5, 5, 5, 5}, drain()); diff != "" {
			t.Errorf("a smaller limit binds at once (-want +got):\n%s", diff)
		}
		l.TryTake(1000)
		set("20/s")
		if diff := cmp.Diff([]int64{15, 20, 20, 20, 20}, drain()); diff != "" {
			t.Errorf("a larger one gives the rest at once (-want +got):\n%s", diff)
		}
		if err := source.Set(quota.Policy{}); err == nil {
			t.Error("an invalid policy was taken")
		}
	})
}

func TestPauseShadowAndDrain(t *testing.T) {
	bubble(t, "2/s", Options{}, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		p := policyOf(t, "2/s")
		p.Mode = quota.ModePause
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		var limited LimitError
		if err := l.Acquire(ctx, 10*time.Second); !errors.As(err, &limited) || limited.Reason != ReasonPaused || !strings.HasSuffix(err.Error(), "; resume with quota-admin resume p") {
			t.Errorf("%v, want refused because paused", err)
		}
		p.Mode = quota.ModeShadow
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		for range 5 {
			if err := l.Acquire(ctx, 0); err != nil {
				t.Error(err)
			}
		}
		if st := l.Status(); st.Issued != 2 || st.Shadowed != 3 {
			t.Errorf("issued %d, shadowed %d; want 2 and 3", st.Issued, st.Shadowed)
		}
		l.PauseUntil(time.Now().Add(time.Minute))
		until := l.Status().PausedUntil.UTC().Format("15:04:05 UTC")
		if r := l.core.Report(l.core.clock.Now()); r.State != quota.StateActive || r.Problem != "shadow mode: would pause until "+until+" (this program paused the limiter); calls pass" {
			t.Errorf("shadow mode beside a pause: %+v", r)
		}
		if err := l.Acquire(ctx, 0); err != nil {
			t.Error(err)
		}
		l.Resume()
		p.Mode = quota.ModeEnforce
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		start := time.Now()
		l.PauseUntil(start.Add(2500 * time.Millisecond))
		if st := l.Status(); st.State != quota.StatePausing {
			t.Errorf("state %q, want pausing", st.State)
		}
		if err := l.Acquire(ctx, 2*time.Second); !errors.As(err, &limited) || limited.Reason != ReasonPause {
			t.Errorf("%v, want refused because it pauses", err)
		}
		if err := l.Acquire(ctx, Forever); err != nil || time.Since(start) != 2500*time.Millisecond {
			t.Errorf("after %v: %v, want a permit after 2.5s", time.Since(start), err)
		}
		l.PauseUntil(time.Now().Add(time.Hour))
		l.Resume()
		if !l.TryAcquire() {
			t.Error("an instant in the past did not end the drain")
		}
	})
}
