//go:build e2e

package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// callerRole is that of a process whose instances call the provider all the time.
const (
	callerRole = "caller"
	callers    = 20
	eachCalls  = callers / processes
	instanceID = "Instance" // a header
)

// caller is a process with several instances, numbered from First on.
type caller struct {
	Endpoints []string
	URL       string
	First     int
}

// heard is what an instance knows, told when it changes and no call is under way.
type heard struct {
	Instance    int
	PausedUntil time.Time
	Policy      int64
}

func (c caller) work(orders <-chan struct{}, tell func(heard)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := dial(c.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	base := &http.Transport{MaxIdleConnsPerHost: eachCalls}
	var all sync.WaitGroup
	for i := range eachCalls {
		// A lease that a busy machine does not lose.
		s, err := coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("caller-%d", c.First+i), TTL: time.Minute, Logger: quiet, Lazy: true})
		if err != nil {
			return err
		}
		defer s.Close()
		l, err := consumer.Open(ctx, s, provider, consumer.Options{Logger: quiet})
		if err != nil {
			return err
		}
		all.Go(func() {
			c.call(ctx, c.First+i, l, &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: l}}, tell)
		})
	}
	<-orders
	cancel()
	all.Wait()
	return nil
}

// call calls every 20 ms, as far as the limiter allows.
func (c caller) call(ctx context.Context, number int, l *consumer.Limiter, client *http.Client, tell func(heard)) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var told heard
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, http.NoBody)
		if err != nil {
			panic(err)
		}
		r.Header.Set(instanceID, strconv.Itoa(number))
		if answer, err := client.Do(r); err == nil {
			_ = answer.Body.Close()
		}
		s := l.Status()
		now := heard{number, s.PausedUntil.Round(10 * time.Millisecond), s.PolicyRevision}
		if now != told {
			told = now
			tell(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// api is the provider, which counts calls by its own clock and refuses some.
type api struct {
	mu      sync.Mutex
	calls   []call
	refuse  map[int]string // Retry-After of an instance's next answer
	refused time.Time      // when that was given last
	told    [callers]heard
	paused  [callers]int // how many calls there were when an instance told of a pause
}

type call struct {
	instance int
	at       time.Time
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	instance, err := strconv.Atoi(r.Header.Get(instanceID))
	a.mu.Lock()
	defer a.mu.Unlock()
	after, refuse := a.refuse[instance]
	a.calls = append(a.calls, call{instance, time.Now()})
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case refuse:
		delete(a.refuse, instance)
		if a.refused = time.Now(); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// serve starts the provider and the processes that call it, and waits until all do.
func (a *api) serve(t *testing.T, endpoints []string) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	for n := range processes {
		p, err := child.Start(callerRole, caller{endpoints, server.URL, n * eachCalls}, a.hear, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		t.Cleanup(func() {
			if err := p.Close(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	await.Until(t, "all instances call", a.have(1, 0))
}

// hear takes what an instance tells.
func (a *api) hear(h heard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[h.Instance] = h; !h.PausedUntil.IsZero() {
		a.paused[h.Instance] = len(a.calls)
	}
}

// is returns a condition that is asked under the lock.
func (a *api) is(holds func() bool) func() bool {
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return holds()
	}
}

// every is a condition on what each instance has told last.
func (a *api) every(holds func(h *heard) bool) func() bool {
	return a.is(func() bool {
		for i := range a.told {
			if !holds(&a.told[i]) {
				return false
			}
		}
		return true
	})
}

func held(h *heard) bool { return !h.PausedUntil.IsZero() }
func free(h *heard) bool { return h.PausedUntil.IsZero() }

// have is whether each instance has made n calls more than these.
func (a *api) have(n, since int) func() bool {
	return a.is(func() bool {
		var made [callers]int
		for _, c := range a.calls[since:] {
			made[c.instance]++
		}
		for _, m := range made {
			if m < n {
				return false
			}
		}
		return true
	})
}

// answer429 refuses the next call of each of these instances, and returns when it did so
// last, and how many calls there were before.
func (a *api) answer429(t *testing.T, after string, instances ...int) (at time.Time, before int) {
	t.Helper()
	a.mu.Lock()
	for _, i := range instances {
		a.refuse[i] = after
	}
	a.mu.Unlock()
	await.Until(t, "a call is refused", a.is(func() bool { return len(a.refuse) == 0 }))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused, len(a.calls)
}

// around returns the calls of an instance before and after it told of its pause: the
// last one and the first one.
func (a *api) around(instance int) (last, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, c := range a.calls {
		switch {
		case c.instance != instance:
		case n < a.paused[instance]:
			last = c.at
		case first.IsZero():
			first = c.at
		}
	}
	return last, first
}

// delay returns how long after the instant at other instances than the one have called.
func (a *api) delay(at time.Time, but int) (longest time.Duration) {
	for i := range callers {
		if last, _ := a.around(i); i != but {
			longest = max(longest, last.Sub(at))
		}
	}
	return longest.Round(100 * time.Microsecond)
}

// TestABackoffHoldsBackAllProcesses has a provider answer 429 to one and to two of 20 instances in
// 4 processes. What it counts after an instance has told of the pause is exact, since
// no call of it is under way then; how soon that is, is measured.
func TestABackoffHoldsBackAllProcesses(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true})
	command := tool(t, cluster.Endpoints())
	operator, err := admin.New(client, admin.Options{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100_000, Window: window}}, Throttling: quota.Throttling{Backoff: quota.BackoffFleet}}
	if _, err := operator.Put(t.Context(), provider, policy); err != nil {
		t.Fatal(err)
	}
	a := &api{refuse: map[int]string{}}
	a.serve(t, cluster.Endpoints())

	goOn := func() {
		t.Helper()
		await.Until(t, "all go on", a.every(free))
		since := 0
		a.is(func() bool { since = len(a.calls); return true })()
		await.Until(t, "all call again", a.have(1, since))
	}

	// Stray answers.
	_, before := a.answer429(t, "", 3)
	await.Until(t, "all go on after a 429", a.have(20, before))
	if !a.every(free)() {
		t.Error("a 429 without Retry-After holds somebody back")
	}
	_, before = a.answer429(t, "1", 3)
	await.Until(t, "it holds back the one", a.is(func() bool { return held(&a.told[3]) }))
	await.Until(t, "the ask is written", func() bool {
		b, err := feed.Inside(operator).Throttle(t.Context(), provider)
		return err == nil && b != nil
	})
	await.Until(t, "all go on after a second", a.have(20, before))
	for i := range callers {
		if told := a.is(func() bool { return a.paused[i] > 0 })(); told != (i == 3) {
			t.Errorf("instance %d was held back: %v", i, told)
		}
	}

	// Two instances are refused.
	var at time.Time
	var ends [callers]heard
	heldBack := a.every(func(h *heard) bool { ends[h.Instance] = *h; return held(h) })
	for all := false; !all; { // a very busy machine may hear of it too late
		at, _ = a.answer429(t, "3", 7, 8)
		await.Until(t, "all are held back", func() bool { all = heldBack(); return all || time.Since(at) > 3*time.Second })
		goOn()
	}
	windows, late := map[time.Time]int{}, 0
	for i, h := range ends {
		_, first := a.around(i)
		if first.Before(h.PausedUntil.Add(-quota.DefaultClockError)) {
			t.Errorf("instance %d calls %v before the end of its pause", i, h.PausedUntil.Sub(first))
		}
		if off := h.PausedUntil.Sub(ends[7].PausedUntil).Abs(); off > 2*quota.DefaultClockError {
			t.Errorf("the pause of instance %d ends %v before or after that of the one that was refused", i, off)
		}
		windows[first.Truncate(window)]++
		a.is(func() bool {
			for _, c := range a.calls {
				if c.instance == i && i != 7 && c.at.Sub(at) > 100*time.Millisecond && c.at.Before(first) {
					late++
				}
			}
			return true
		})()
	}
	t.Logf("429 with Retry-After: 3 to two of %d instances in %d processes: the last call of another came %v later, %d calls after 100 ms; all went on in %d window(s) of %v",
		callers, processes, a.delay(at, 7), late, len(windows), window)

	// Days.
	bounded := func(at time.Time) {
		t.Helper()
		await.Until(t, "all are held back", heldBack)
		for i, h := range ends {
			if d := h.PausedUntil.Sub(at); d < time.Minute-2*quota.DefaultClockError || d > time.Since(at)+time.Minute+quota.DefaultClockError {
				t.Errorf("instance %d is held back for %v", i, d)
			}
		}
	}
	at, _ = a.answer429(t, "259200", 14, 15)
	bounded(at)
	command("resume", provider)
	goOn()
	t.Logf("429 with Retry-After of 3 days: the last call of another came %v later", a.delay(at, 14))

	// By anybody that may write the key.
	found, err := feed.Inside(operator).Fleet(t.Context(), provider)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := keys.New("")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ask := protocol.Ask{By: found.Instances[0].Instance.ID, At: now, Until: now.AddDate(0, 0, 3), Alone: true}
	value, err := json.Marshal(protocol.Throttle{Asks: []protocol.Ask{ask}})
	if err != nil {
		t.Fatal(err)
	}
	at = time.Now()
	if _, err := client.Put(t.Context(), layout.Throttle(provider), string(value)); err != nil {
		t.Fatal(err)
	}
	bounded(at)
	if ended, err := operator.Resume(t.Context(), provider); err != nil || !ended {
		t.Errorf("ended: %v, %v", ended, err)
	}
	goOn()
	t.Logf("from the key's put to the last call of %d instances: %v", callers, a.delay(at, callers))
}
