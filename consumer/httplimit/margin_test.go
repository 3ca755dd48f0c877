package httplimit_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// arrivals is a provider that counts the requests when they arrive, up to a transit
// time after they were sent.
type arrivals struct {
	transit time.Duration
	mu      sync.Mutex
	at      []time.Time
}

func (a *arrivals) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(rand.N(a.transit))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// fullestWindow returns the most arrivals in a second of the clock.
func (a *arrivals) fullestWindow() (most int) {
	seconds := map[int64]int{}
	for _, at := range a.at {
		seconds[at.Unix()]++
		most = max(most, seconds[at.Unix()])
	}
	return most
}

// fullestSpan returns the most arrivals in a second that begins anywhere.
func (a *arrivals) fullestSpan() (most int) {
	slices.SortFunc(a.at, time.Time.Compare)
	first := 0
	for i, at := range a.at {
		for at.Sub(a.at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// A process that stalls between the grant and the sending, and a network that needs
// its time: with the guard and the margin that docs/http-grpc.md names, the provider's
// fullest second is within the limit, and without the margin it is not.
func TestProviderThatCountsArrivals(t *testing.T) {
	const permits, transit, seconds = 100, 50 * time.Millisecond, 30
	for _, c := range []struct {
		name    string
		policy  quota.Policy
		margin  time.Duration
		fullest func(*arrivals) int
	}{
		{"fixed", quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Timing: quota.Timing{Guard: transit}}, transit, (*arrivals).fullestWindow},
		// Half of the guard is for what comes between the grant and the sending.
		{"sliding", quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Release: quota.Release{Shape: quota.ShapeSliding}, Timing: quota.Timing{Guard: 2 * transit}}, transit, (*arrivals).fullestSpan},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(margin time.Duration) (fullest, all int) {
				a := &arrivals{transit: transit}
				synctest.Test(t, func(t *testing.T) {
					stall := func(context.Context, time.Duration, error) { // runs between the grant and Take's return
						if rand.N(4) == 0 {
							time.Sleep(rand.N(1500 * time.Millisecond))
						}
					}
					limiter, err := consumer.Open(t.Context(), consumer.Fixed(c.policy), "p",
						consumer.Options{Logger: slog.New(slog.DiscardHandler), OnWait: stall})
					if err != nil {
						t.Fatal(err)
					}
					defer limiter.Close()
					client := &http.Client{Transport: &httplimit.Transport{Base: a, Limiter: limiter, MaxWait: consumer.Forever, Margin: margin}}
					end := time.Now().Add(seconds * time.Second)
					var callers sync.WaitGroup
					for range 4 * permits {
						callers.Go(func() {
							for time.Now().Before(end) {
								if err := get(t, client, "http://a/"); err != nil {
									t.Error(err)
								}
							}
						})
					}
					callers.Wait()
				})
				return c.fullest(a), len(a.at)
			}
			if fullest, _ := run(0); fullest <= permits {
				t.Errorf("without the margin %d requests arrived in a second: this provider cannot tell", fullest)
			}
			fullest, all := run(c.margin)
			if fullest > permits {
				t.Errorf("%d requests arrived in a second, the limit is %d", fullest, permits)
			}
			if all < permits*seconds*8/10 {
				t.Errorf("only %d requests arrived in %d s", all, seconds)
			}
			t.Logf("%d requests in the fullest second, %d in all", fullest, all)
		})
	}
}

// A margin that no permit can meet is an error, not a wait without an end; and a
// request that may not wait for the next window is told when to try again.
func TestMarginThatCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "10/s")
		time.Sleep(900 * time.Millisecond)
		for margin, want := range map[time.Duration]error{time.Second: consumer.ErrInvalid, 500 * time.Millisecond: consumer.ErrLimited} {
			client := &http.Client{Transport: &httplimit.Transport{Base: &provider{}, Limiter: limiter, Margin: margin}}
			err := get(t, client, "http://a/")
			if !errors.Is(err, want) {
				t.Errorf("margin %v: %v", margin, err)
			}
			if margin == time.Second && !strings.Contains(err.Error(), "httplimit: invalid argument: a margin of 1s leaves nothing of a window of 1s") {
				t.Error(err)
			}
			if limited, ok := errors.AsType[consumer.LimitError](err); ok && time.Until(limited.RetryAt) != 100*time.Millisecond {
				t.Errorf("margin %v: retry in %v", margin, time.Until(limited.RetryAt))
			}
		}
		if used := limiter.Status().Shortest().Used; used != 0 {
			t.Errorf("%d permits are used", used)
		}
	})
}
