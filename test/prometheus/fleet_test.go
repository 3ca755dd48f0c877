//go:build e2e

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/prommetrics"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	instances = 5
	provider  = "payments/charge"
	unset     = "payments/refund" // has no policy
)

// worker is an instance as an application would run it: a session, a limiter,
// a page of metrics.
type worker struct {
	limiter *consumer.Limiter
	target  string
}

// workers starts the fleet. It ends with the test.
func workers(t *testing.T) (all []worker) {
	t.Helper()
	_, etcd := etcdtest.New(t, embedded.Options{})
	operator, err := admin.New(etcd, admin.Options{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := quota.ParseLimits("1000/s,3000/5s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.PutIf(t.Context(), provider, quota.Policy{Limits: limits}, 0); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	for i := range instances {
		session, err := coordinator.Join(t.Context(), etcd, coordinator.Options{Name: fmt.Sprintf("worker-%d", i), Logger: quiet, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		metrics, registry := prommetrics.New(), client.NewPedanticRegistry()
		registry.MustRegister(metrics)
		limiter, err := metrics.Open(t.Context(), session, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := metrics.Open(t.Context(), session, unset, consumer.Options{Logger: quiet}); err != nil {
				t.Fatal(err)
			}
		}
		page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(page.Close)
		all = append(all, worker{limiter, strings.TrimPrefix(page.URL, "http://")})
	}
	return all
}

// load asks for permits until stop is called, which returns how many were
// issued and how many refused, by a count of its own.
func load(ctx context.Context, all []worker) (stop func() (issued, refused int64)) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	var issued, refused atomic.Int64
	for _, w := range all {
		done.Go(func() { // waits for each
			for {
				switch err := w.limiter.Acquire(ctx, 3*time.Second); {
				case err == nil:
					issued.Add(1)
				case errors.Is(err, context.Canceled):
					return
				default:
					refused.Add(1)
				}
			}
		})
		done.Go(func() { // waits for none
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				if w.limiter.Label("prober").TryAcquire() {
					issued.Add(1)
				} else {
					refused.Add(1)
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	return func() (int64, int64) {
		cancel()
		done.Wait()
		return issued.Load(), refused.Load()
	}
}

// A real Prometheus scrapes a fleet under load: its sums are the fleet's own
// counts, every rule and every query of the dashboard works on them, and the
// provider without a limit is alerted.
func TestPrometheusScrapesAFleet(t *testing.T) {
	all := workers(t)
	var targets []string
	for _, w := range all {
		targets = append(targets, w.target)
	}
	s := start(t, targets)
	for _, w := range all {
		if err := w.limiter.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop := load(t.Context(), all)
	for expr, want := range map[string]float64{
		`count(up == 1)`: instances,
		`provider:quotient_limit:permits_per_second`:                                             600, // 3000/5s
		`sum(quotient_share_permits{window="1s"})`:                                               1000,
		`sum(quotient_share_permits{window="5s"})`:                                               3000,
		`provider_window:quotient_shares:ratio{window="1s"}`:                                     1,
		`count(quotient_instances{provider="payments/charge"} == 5)`:                             instances,
		`sum(quotient_state{provider="payments/charge",state="active"})`:                         instances,
		`count(ALERTS{alertname="QuotientLimitMissing",provider="payments/refund"})`:             1,
		`count(provider:quotient_utilisation:ratio1m > 0)`:                                       1,
		`count(sum by (provider) (rate(quotient_wait_seconds_count{result="granted"}[1m])) > 0)`: 1,
	} {
		eventually(t, expr, func() error { return s.is(t.Context(), expr, want) })
	}
	checkDashboard(t, s)
	checkRules(t, s)

	issued, refused := stop()
	if issued == 0 || refused == 0 {
		t.Errorf("issued %d, refused %d: no load", issued, refused)
	}
	eventually(t, "Prometheus has what was issued", func() error {
		return errors.Join(
			s.is(t.Context(), `sum(quotient_permits_issued_total)`, float64(issued)),
			s.is(t.Context(), `sum(quotient_permits_refused_total)`, float64(refused)),
			s.is(t.Context(), `sum(quotient_permits_over_issued_total)`, 0))
	})
	var build struct{ Version string }
	if err := s.api(t.Context(), "status/buildinfo", nil, &build); err != nil {
		t.Error(err)
	}
	t.Logf("Prometheus %s agrees: %d issued, %d refused", build.Version, issued, refused)
}

// checkRules has Prometheus's own word on every rule.
func checkRules(t *testing.T, s *server) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.api(t.Context(), "rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			n++
			if r.Health != "ok" {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n != 23 {
		t.Errorf("Prometheus has %d rules, want 23", n)
	}
}

// mayBeEmpty are queries of what need not be known.
var mayBeEmpty = regexp.MustCompile(`quotient_clock_error_seconds|quotient_limit_(remaining|window_end|exhausted)`)

// checkDashboard runs every query of the dashboard as Grafana would. What a panel shows only above 0 may be 0 here: then
// there must be a 0.
func checkDashboard(t *testing.T, s *server) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/quotient.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$provider", provider, "$__rate_interval", "15s")
	n := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			n++
			expr := strings.TrimSuffix(variables.Replace(target.Expr), " > 0")
			eventually(t, p.Title, func() error {
				samples, err := s.query(t.Context(), expr)
				if err == nil && len(samples) == 0 && !mayBeEmpty.MatchString(expr) {
					err = fmt.Errorf("nothing matches %s", expr)
				}
				return err
			})
		}
	}
	t.Logf("%d queries of the dashboard", n)
}
