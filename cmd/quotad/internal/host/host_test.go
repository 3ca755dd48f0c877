package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var policy = quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}

// etcd knows providers that begin with "p", and counts the questions.
type etcd struct {
	asked int
	slow  bool // each answer takes it 2 s
}

func (e *etcd) known(_ context.Context, provider string) error {
	e.asked++
	if e.slow {
		time.Sleep(2 * time.Second)
	}
	switch provider[0] {
	case 'p':
		return nil
	case 's':
		time.Sleep(2 * time.Second)
		fallthrough
	case 'e':
		return errors.New("etcd did not answer")
	}
	return Unknown(provider)
}

// inBubble calls f with a host in a bubble.
func inBubble(t *testing.T, keep []string, f func(t *testing.T, h *Host, e *etcd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &etcd{}
		h, err := New(t.Context(), consumer.Fixed(policy), Options{
			Known: e.known, Keep: keep, Max: 3, Idle: 5 * time.Minute, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, h, e)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if _, err := h.Limiter(t.Context(), "p1"); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(lookupEvery)
	})
}

func TestLimiterOpensOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, e *etcd) {
		first, err := h.Limiter(t.Context(), "p1")
		if err != nil || !first.TryAcquire() {
			t.Fatal("no permit", err)
		}
		two, err := h.Limiter(t.Context(), "p1")
		if err != nil || first != two || e.asked != 1 {
			t.Errorf("%p and %p, %v, etcd asked %d times", first, two, err, e.asked)
		}
		if s, ok := h.Status("p1"); !ok || s.Issued != 1 {
			t.Errorf("status %+v, %v", s, ok)
		}
	})
}

func TestUnknownProvidersOpenNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, e *etcd) {
		for _, test := range []struct {
			name string
			want error
		}{{"x", ErrUnknown}, {"x", ErrUnknown}, {"e", nil}, {"", nil}, {"a//b", nil}} {
			_, err := h.Limiter(t.Context(), test.name)
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%q: %v", test.name, err)
			}
		}
		if all := h.Statuses(); len(all) != 0 {
			t.Errorf("open: %v", all)
		}
		if e.asked != 2 { // once for x, once for e
			t.Errorf("etcd was asked %d times", e.asked)
		}
		time.Sleep(unknownFor)
		_, _ = h.Limiter(t.Context(), "x") // its policy may be set by now
		if e.asked != 3 {
			t.Errorf("etcd was asked %d times", e.asked)
		}
	})
}

// A stranger that invents names asks etcd no more often than the bound.
func TestLookupsAreBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, e *etcd) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = h.Limiter(ctx, fmt.Sprint("x", n))
		}
		synctest.Wait() // whoever is asked when the second ends is asked to the end
		if most := int(time.Second/lookupEvery) + 1; e.asked > most || e.asked < most/2 {
			t.Errorf("etcd was asked %d times in a second, at most %d are allowed", e.asked, most)
		}
	})
}

// Names that one invents hold up the first call for a provider as long as etcd is asked about them,
// in the order in which they came.
func TestLookupsKeepTheirOrder(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, _ *etcd) {
		const invented = 20
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		invent := func(name string) {
			for n := range invented {
				all.Go(func() { _, _ = h.Limiter(ctx, fmt.Sprint(name, n)) })
				synctest.Wait()
			}
		}
		began := time.Now()
		invent("x")
		all.Go(func() {
			if _, err := h.Limiter(t.Context(), "p1"); err != nil || time.Since(began) != invented*lookupEvery {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			cancel()
		})
		synctest.Wait()
		invent("y")
		all.Wait()
	})
}

// While etcd does not answer, callers wait for the questions of others for a bounded time.
func TestWaitForLookupsIsBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, _ *etcd) {
		answered := make(chan error, 8)
		for n := range 8 {
			go func() {
				_, err := h.Limiter(t.Context(), fmt.Sprint("s", n))
				answered <- err
			}()
		}
		time.Sleep(lookupWait + 2*time.Second)
		synctest.Wait()
		if len(answered) != 8 {
			t.Errorf("%d of 8 are answered", len(answered))
		}
		for range 8 {
			if err := <-answered; err == nil || !strings.HasPrefix(err.Error(), "etcd ") {
				t.Error(err)
			}
		}
	})
}

// A caller that leaves before etcd has answered is told so, and the next one finds the provider open. Names that callers
// left are no more than maxAsked, and none outlives the host.
func TestAProviderIsOpenedForTheNextCall(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, e *etcd) {
		e.slow = true
		at := func(wait time.Duration, name string) (*consumer.Limiter, error) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			return h.Limiter(ctx, name)
		}
		for range 3 {
			if _, err := at(10*time.Millisecond, "p1"); err == nil || err.Error() != "p1 is not open here, and etcd has not said yet whether it has a limit: try again" {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Second)
		if l, err := at(0, "p1"); err != nil || l == nil || e.asked != 1 {
			t.Errorf("%v, and etcd was asked %d times", err, e.asked)
		}
		for n := range maxAsked {
			_, _ = at(time.Nanosecond, fmt.Sprint("x", n))
		}
		if _, err := at(time.Second, "p2"); err == nil || err.Error() != "etcd is being asked about 1024 other providers: try again" {
			t.Error(err)
		}
	})
}

func TestProvidersAreBounded(t *testing.T) {
	inBubble(t, []string{"p0"}, func(t *testing.T, h *Host, e *etcd) {
		for n := range 5 {
			if _, err := h.Limiter(t.Context(), fmt.Sprint("p", n)); n < 3 && err != nil || n >= 3 && !errors.Is(err, ErrFull) {
				t.Errorf("provider %d: %v", n, err)
			}
		}
		if e.asked != 2 { // not for the kept one, nor beyond the bound
			t.Errorf("etcd was asked %d times", e.asked)
		}
	})
}

func TestIdleProvidersAreClosed(t *testing.T) {
	inBubble(t, []string{"p0"}, func(t *testing.T, h *Host, _ *etcd) {
		open := func(name string) *consumer.Limiter {
			l, err := h.Limiter(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first, used := open("p1"), open("p2")
		for range 5 {
			time.Sleep(2 * time.Minute)
			if open("p2") != used {
				t.Error("p2 was closed between calls")
			}
		}
		if _, ok := h.Status("p1"); ok {
			t.Error("p1 is open without calls")
		}
		for _, name := range []string{"p0", "p2"} {
			if s, ok := h.Status(name); !ok || s.State != quota.StateActive {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if err := h.Ready(); err != nil {
			t.Error(err)
		}
		if open("p1") == first || first.TryAcquire() {
			t.Error("the closed limiter is in use")
		}
	})
}

// A provider for whose permits somebody waits is not idle.
func TestAProviderWithWaitersStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: time.Minute}}}
		h, err := New(t.Context(), consumer.Fixed(slow), Options{
			Known: (&etcd{}).known, Max: 1, Idle: 5 * time.Minute, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Limiter(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range 12 { // the last for more than twice the time
			waiting.Go(func() {
				if err := l.Acquire(t.Context(), time.Hour); err != nil {
					t.Error(err)
				}
			})
		}
		waiting.Wait()
		time.Sleep(10 * time.Minute)
		if _, ok := h.Status("p"); ok {
			t.Error("the provider is open, and nobody waits any more")
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(lookupEvery)
	})
}

func TestReadyNamesTheProvider(t *testing.T) {
	source := consumer.Fixed(policy)
	h, err := New(t.Context(), source, Options{Keep: []string{"p"}, Max: 1, Idle: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(); err != nil {
		t.Error(err)
	}
	h.Drain()
	if l, err := h.Limiter(t.Context(), "p"); err != nil || !l.TryAcquire() || !errors.Is(h.Ready(), ErrClosed) {
		t.Error("a host that leaves gives permits, and is not ready", err)
	}
	h.leaves = false
	h.open["p"].limiter.Close()
	if err := h.Ready(); err == nil || err.Error() != "p is closed" {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Ready(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// Opened opens nothing.
func TestOpened(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, h *Host, _ *etcd) {
		if h.Opened("p2") != nil {
			t.Error("it was opened before anybody asked for it")
		}
		if l, err := h.Limiter(t.Context(), "p2"); err != nil || h.Opened("p2") != l {
			t.Error("it is open, and not found", err)
		}
	})
}

// A provider stays open while calls of its limit in flight are under way: they are to be ended there.
func TestCallsInFlightKeepAProviderOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, err := quota.ParseLimits("2 inflight hold=1h")
		if err != nil {
			t.Fatal(err)
		}
		h, err := New(t.Context(), consumer.Fixed(quota.Policy{Limits: limits}), Options{Known: (&etcd{}).known, Max: 3, Idle: 5 * time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Limiter(t.Context(), "p1")
		if err != nil {
			t.Fatal(err)
		}
		call := l.TryTake(1)
		for _, open := range []bool{true, false} {
			time.Sleep(30 * time.Minute)
			if _, ok := h.Status("p1"); ok != open {
				t.Errorf("open %v, want %v", ok, open)
			}
			call.Done()
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(lookupEvery)
	})
}

// A host that joins a fleet serves calls by what others lend. It is ready when it has a share.
func TestReadyWithAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, err := limittest.New(policy, 1)
		if err != nil {
			t.Fatal(err)
		}
		other, err := consumer.Open(t.Context(), fleet.Instances()[0], "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		h, err := New(t.Context(), fleet.Join(), Options{Known: (&etcd{}).known, Keep: []string{"p"}, Max: 1, Idle: time.Hour, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := h.Limiter(t.Context(), "p"); err != nil || l.Acquire(t.Context(), time.Second) != nil {
			t.Error("nothing is lent", err)
		}
		if err := h.Ready(); err == nil || !strings.HasPrefix(err.Error(), "p is joining: ") {
			t.Error("it has no share yet:", err)
		}
		time.Sleep(time.Until(began.Add(5 * time.Second)))
		if err := h.Ready(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(h.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}
