package prommetrics_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/prommetrics"
	"github.com/quotient-limiter/quotient/quota"
)

var quiet = consumer.Options{Logger: slog.New(slog.DiscardHandler)}

func fixed(t testing.TB, limits string) *consumer.FixedSource {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	return consumer.Fixed(quota.Policy{Limits: l})
}

func expect(t *testing.T, r prometheus.Gatherer, text string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(r, strings.NewReader(text), names...); err != nil {
		t.Error(err)
	}
}

func TestMetricsTellWhatTheLimiterDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		ctx := t.Context()
		limiter, err := metrics.Open(ctx, fixed(t, "3/s,9/10s"), "payments/charge", quiet)
		if err != nil {
			t.Fatal(err)
		}
		limiter.TryTake(2).N()
		_, _ = limiter.Take(ctx, 2, 0)
		time.Sleep(600 * time.Millisecond)
		if _, err := limiter.Take(ctx, 3, consumer.Forever); err != nil { // waits 400 ms
			t.Fatal(err)
		}
		c, cancel := context.WithCancel(ctx)
		time.AfterFunc(5*time.Millisecond, cancel)
		_ = limiter.Acquire(c, consumer.Forever)
		expect(t, registry, `
# HELP quotient_permits_issued_total Permits issued by this instance. It does not fall when permits are given back: it rests until as many are issued again.
# TYPE quotient_permits_issued_total counter
quotient_permits_issued_total{provider="payments/charge"} 5
# HELP quotient_permits_refused_total Permits refused by this instance, by reason.
# TYPE quotient_permits_refused_total counter
quotient_permits_refused_total{provider="payments/charge",reason="closed"} 0
quotient_permits_refused_total{provider="payments/charge",reason="debt"} 0
quotient_permits_refused_total{provider="payments/charge",reason="in_flight"} 0
quotient_permits_refused_total{provider="payments/charge",reason="joining"} 0
quotient_permits_refused_total{provider="payments/charge",reason="kept"} 0
quotient_permits_refused_total{provider="payments/charge",reason="no_policy"} 0
quotient_permits_refused_total{provider="payments/charge",reason="pacing"} 0
quotient_permits_refused_total{provider="payments/charge",reason="pause"} 0
quotient_permits_refused_total{provider="payments/charge",reason="paused"} 0
quotient_permits_refused_total{provider="payments/charge",reason="queue"} 0
quotient_permits_refused_total{provider="payments/charge",reason="queue_full"} 0
quotient_permits_refused_total{provider="payments/charge",reason="share_spent"} 2
quotient_permits_refused_total{provider="payments/charge",reason="stale"} 0
quotient_permits_refused_total{provider="payments/charge",reason="too_large"} 0
# HELP quotient_limit_permits The provider's limit, per window; or the calls that may be under way at once.
# TYPE quotient_limit_permits gauge
quotient_limit_permits{provider="payments/charge",window="10s"} 9
quotient_limit_permits{provider="payments/charge",window="1s"} 3
# HELP quotient_limit_window_seconds Length of the limit's window; missing for calls in flight, which count in none.
# TYPE quotient_limit_window_seconds gauge
quotient_limit_window_seconds{provider="payments/charge",window="10s"} 10
quotient_limit_window_seconds{provider="payments/charge",window="1s"} 1
# HELP quotient_share_permits This instance's share of the limit in the current window; of a window above a minute and of calls in flight, what it has taken.
# TYPE quotient_share_permits gauge
quotient_share_permits{provider="payments/charge",window="10s"} 9
quotient_share_permits{provider="payments/charge",window="1s"} 3
# HELP quotient_state 1 for the state that the limiter is in, 0 for the others.
# TYPE quotient_state gauge
quotient_state{provider="payments/charge",state="active"} 1
quotient_state{provider="payments/charge",state="pausing"} 0
quotient_state{provider="payments/charge",state="joining"} 0
quotient_state{provider="payments/charge",state="paused"} 0
quotient_state{provider="payments/charge",state="stale"} 0
# HELP quotient_permits_over_issued_total Permits issued beyond the share. Always 0; another value is a bug.
# TYPE quotient_permits_over_issued_total counter
quotient_permits_over_issued_total{provider="payments/charge"} 0
# HELP quotient_problem 1 while a problem keeps this instance from applying the policy; its log names it.
# TYPE quotient_problem gauge
quotient_problem{provider="payments/charge"} 0
# HELP quotient_clock_error_allowed_seconds The clock error that the policy allows for.
# TYPE quotient_clock_error_allowed_seconds gauge
quotient_clock_error_allowed_seconds{provider="payments/charge"} 0.05
`, "quotient_permits_issued_total", "quotient_permits_refused_total", "quotient_limit_permits", "quotient_limit_window_seconds",
			"quotient_share_permits", "quotient_state", "quotient_permits_over_issued_total", "quotient_problem",
			"quotient_clock_error_allowed_seconds")
		sums := waits(t, registry)
		if len(sums) != 3 || sums["granted"] != 0.4 || sums["cancelled"] != 0.005 || sums["refused"] != 0 {
			t.Errorf("waits %v", sums)
		}
		_ = limiter.Close()
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			t.Errorf("after Close %d metrics, %v", n, err)
		}
	})
}

// waits returns the sum of each histogram of waits by its result.
func waits(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					sums[l.GetValue()] = m.GetHistogram().GetSampleSum()
				}
			}
		}
	}
	return sums
}

// One provider, opened twice, is one counter, and is shown once, until the last
// of its limiters is closed.
func TestAProviderIsShownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		source := fixed(t, "10/s")
		var limiters []*consumer.Limiter
		for range 2 {
			l, err := metrics.Open(t.Context(), source, "p", quiet)
			if err != nil {
				t.Fatal(err)
			}
			limiters = append(limiters, l)
			l.TryAcquire()
		}
		for _, l := range limiters {
			expect(t, registry, `
# HELP quotient_permits_issued_total Permits issued by this instance. It does not fall when permits are given back: it rests until as many are issued again.
# TYPE quotient_permits_issued_total counter
quotient_permits_issued_total{provider="p"} 2
`, "quotient_permits_issued_total")
			_ = l.Close()
		}
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			t.Errorf("after Close %d metrics, %v", n, err)
		}
	})
}

// opened returns a limiter of 10/s, and where its metrics are.
func opened(t *testing.T) (*consumer.Limiter, *prometheus.Registry) {
	t.Helper()
	metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	l, err := metrics.Open(t.Context(), fixed(t, "10/s"), "p", quiet)
	if err != nil {
		t.Fatal(err)
	}
	return l, registry
}

func TestADebtIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, registry := opened(t)
		defer l.Close()
		if err := l.TryTake(10).Settle(17); err != nil {
			t.Fatal(err)
		}
		expect(t, registry, `
# HELP quotient_debt_permits Permits that calls have cost beyond those issued, to be paid before anything else is issued.
# TYPE quotient_debt_permits gauge
quotient_debt_permits{provider="p"} 7
`, "quotient_debt_permits")
	})
}

// Of a limit per day there is what is left, and when the day ends.
func TestALongLimitIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		l, err := metrics.Open(t.Context(), fixed(t, "10/s,100/d"), "p", quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.TryTake(4)
		expect(t, registry, `
# HELP quotient_limit_remaining_permits Permits of a window above a minute, or of calls in flight, that this instance has in hand or nobody had taken when it last read etcd; missing before its first read. The smallest value of all instances is the newest.
# TYPE quotient_limit_remaining_permits gauge
quotient_limit_remaining_permits{provider="p",window="d"} 96
# HELP quotient_limit_window_end_timestamp_seconds When a window above a minute ends, in seconds since the Unix epoch; missing for a limit that slides.
# TYPE quotient_limit_window_end_timestamp_seconds gauge
quotient_limit_window_end_timestamp_seconds{provider="p",window="d"} 9.467712e+08
`, "quotient_limit_remaining_permits", "quotient_limit_window_end_timestamp_seconds")
	})
}

// A limit in flight has no window by which it could be taken for a rate, and a sliding one no window that ends.
func TestCallsInFlightAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		for provider, limits := range map[string]string{"calls": "5 inflight hold=10s", "sliding": "100/h sliding"} {
			l, err := metrics.Open(t.Context(), fixed(t, limits), provider, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			l.TryTake(4)
		}
		expect(t, registry, `
# HELP quotient_calls_in_flight Calls of this instance that are under way, of a limit in flight.
# TYPE quotient_calls_in_flight gauge
quotient_calls_in_flight{provider="calls",window="10s-inflight"} 4
# HELP quotient_limit_permits The provider's limit, per window; or the calls that may be under way at once.
# TYPE quotient_limit_permits gauge
quotient_limit_permits{provider="calls",window="10s-inflight"} 5
quotient_limit_permits{provider="sliding",window="h-sliding"} 100
# HELP quotient_limit_remaining_permits Permits of a window above a minute, or of calls in flight, that this instance has in hand or nobody had taken when it last read etcd; missing before its first read. The smallest value of all instances is the newest.
# TYPE quotient_limit_remaining_permits gauge
quotient_limit_remaining_permits{provider="calls",window="10s-inflight"} 1
quotient_limit_remaining_permits{provider="sliding",window="h-sliding"} 96
# HELP quotient_limit_window_seconds Length of the limit's window; missing for calls in flight, which count in none.
# TYPE quotient_limit_window_seconds gauge
quotient_limit_window_seconds{provider="sliding",window="h-sliding"} 3600
# HELP quotient_limit_withheld 1 while nothing more of a window above a minute, or of calls in flight, is handed out, as after a restore of etcd: quota-admin budget PROVIDER --used N ends that; else 0.
# TYPE quotient_limit_withheld gauge
quotient_limit_withheld{provider="calls",window="10s-inflight"} 0
quotient_limit_withheld{provider="sliding",window="h-sliding"} 0
`, "quotient_calls_in_flight", "quotient_limit_permits", "quotient_limit_remaining_permits", "quotient_limit_window_seconds", "quotient_limit_window_end_timestamp_seconds", "quotient_limit_withheld")
	})
}

func TestAPauseIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, registry := opened(t)
		defer l.Close()
		shown := func(seconds string) {
			t.Helper()
			expect(t, registry, `
# HELP quotient_pause_seconds Time until the pause ends for which the provider asked; 0 without one.
# TYPE quotient_pause_seconds gauge
quotient_pause_seconds{provider="p"} `+seconds+"\n", "quotient_pause_seconds")
		}
		shown("0")
		l.Throttled(30*time.Second, "429")
		time.Sleep(10 * time.Second)
		shown("20")
		time.Sleep(21 * time.Second)
		shown("0")
	})
}

func TestAFailedOpenShowsNothing(t *testing.T) {
	t.Parallel()
	metrics, registry := prommetrics.New(), prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	if _, err := metrics.Open(t.Context(), consumer.Fixed(quota.Policy{}), "p", quiet); err == nil {
		t.Error("opened a policy without limits")
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d metrics, %v", n, err)
	}
}

func TestNamesFollowConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prommetrics.New()
		l, err := metrics.Open(t.Context(), fixed(t, "10/s"), "p", quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		problems, err := testutil.CollectAndLint(metrics)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	ctx := context.Background()
	source := fixed(b, "1000000000000/1m")
	plain, err := consumer.Open(ctx, source, "off", quiet)
	if err != nil {
		b.Fatal(err)
	}
	metrics := prommetrics.New()
	shown, err := metrics.Open(ctx, source, "on", quiet)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		l    *consumer.Limiter
	}{{"metrics=off", plain}, {"metrics=on", shown}} {
		b.Run("call=TryAcquire/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.l.TryAcquire()
			}
		})
		b.Run("call=Acquire/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = c.l.Acquire(ctx, time.Second)
			}
		})
	}
	b.Run("call=Gather", func(b *testing.B) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics)
		for b.Loop() {
			if _, err := registry.Gather(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
