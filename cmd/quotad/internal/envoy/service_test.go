package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// fixed are limiters of policies by provider, without etcd.
type fixed struct {
	clock    *clock.Clock
	limiters map[string]*consumer.Limiter
	registry *prometheus.Registry
}

func (f *fixed) Limiter(_ context.Context, provider string) (*consumer.Limiter, error) {
	if l := f.limiters[provider]; l != nil {
		return l, nil
	}
	return nil, errors.New("unknown provider " + provider)
}

func (f *fixed) Clock() *clock.Clock { return f.clock }

func policyOf(t *testing.T, limits string) quota.Policy {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	return quota.Policy{Limits: l}
}

// serveUntilEnd serves until the test ends, and then closes what the server used.
func serveUntilEnd(t *testing.T, s *Server, then ...func() error) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		err := errors.Join(s.Shutdown(context.Background()), <-served)
		for _, f := range then {
			err = errors.Join(err, f())
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// serve starts a server in the bubble, and returns a connection to it.
func serve(t *testing.T, rules string, limits map[string]string) (*fixed, *grpc.ClientConn) {
	t.Helper()
	policies := map[string]quota.Policy{}
	for name, text := range limits {
		policies[name] = policyOf(t, text)
	}
	return serveOf(t, rules, policies)
}

func serveOf(t *testing.T, rules string, policies map[string]quota.Policy) (*fixed, *grpc.ClientConn) {
	t.Helper()
	m, err := load(write(t, rules))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixed{limiters: map[string]*consumer.Limiter{}}
	for name, policy := range policies {
		source := consumer.Fixed(policy)
		f.clock = feed.Inside(source).Clock()
		if f.limiters[name], err = consumer.Open(t.Context(), source, name, consumer.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
	l := bufconn.Listen(1 << 16)
	f.registry = prometheus.NewRegistry()
	s := newServer(l, &limits{rules: m, limiters: f, metrics: newMetrics(f.registry), log: slog.New(slog.DiscardHandler), calls: listen.NewOccupancy("calls", listen.Bounds{All: 2})})
	var then []func() error
	for _, l := range f.limiters {
		then = append(then, l.Close)
	}
	serveUntilEnd(t, s, then...)
	conn, err := grpc.NewClient("passthrough:quotad", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return f, conn
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const rules = `
descriptors:
- {domain: edge, entries: [{key: route, value: charge}], provider: payments/charge}
- {domain: edge, entries: [{key: route, value: charge}, {key: team}], provider: teams, name: team}
- {domain: edge, entries: [{key: route, value: gone}], provider: gone}
`

// descriptors reads descriptors such as "route=charge,team=a route=charge +3".
func descriptors(text string) (all []*commonv3.RateLimitDescriptor) {
	for one := range strings.FieldsSeq(text) {
		d := &commonv3.RateLimitDescriptor{}
		for entry := range strings.SplitSeq(one, ",") {
			if key, value, ok := strings.Cut(entry, "="); ok {
				d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
			} else {
				var n uint64
				if _, err := fmt.Sscan(entry, &n); err != nil {
					panic(err)
				}
				d.HitsAddend = wrapperspb.UInt64(n)
			}
		}
		all = append(all, d)
	}
	return all
}

func TestShouldRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, conn := serve(t, rules, map[string]string{"payments/charge": "5/s", "teams": "3/m"})
		client := rlsv3.NewRateLimitServiceClient(conn)
		for _, c := range []struct {
			descriptors string
			hits        uint32
			codes       string // the whole, and each
			fields      string
		}{
			{"route=other", 0, "OK [OK]", ""},
			{"route=charge,team=a,x=y", 0, "OK [OK]", ""},
			{"route=charge", 0, "OK [OK]", `"default-1s";r=4;t=1`},
			{"route=charge", 2, "OK [OK]", `"default-1s";r=2;t=1`},
			{"route=charge,0", 2, "OK [OK]", `"default-1s";r=2;t=1`},
			{"route=charge,1 route=charge,2", 0, "OVER_LIMIT [OVER_LIMIT OVER_LIMIT]", `"default-1s";r=2;t=1|"default-1s";r=2;t=1`},
			{"route=charge,3", 1, "OVER_LIMIT [OVER_LIMIT]", `"default-1s";r=2;t=1`},
			{"route=other route=charge,team=a", 0, "OK [OK OK]", `"team-1m";r=2;t=60`},
			{"route=charge route=charge,team=b", 2, "OK [OK OK]", `"default-1s";r=0;t=1|"team-1m";r=0;t=60`},
			{"route=gone", 0, "OVER_LIMIT [OVER_LIMIT]", ""},
		} {
			r, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors(c.descriptors), HitsAddend: c.hits})
			if err != nil {
				t.Fatal(c.descriptors, err)
			}
			if got := codesOf(r); got != c.codes || field(r, "Ratelimit") != c.fields {
				t.Errorf("%s with %d hits: %s and %s, not %s and %s", c.descriptors, c.hits, got, field(r, "Ratelimit"), c.codes, c.fields)
			}
			if over := r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; over != (field(r, "Retry-After") != "") {
				t.Errorf("%s: Retry-After %q", c.descriptors, field(r, "Retry-After"))
			}
		}
		// All or none: the team's permits come back, and so does the next second's.
		time.Sleep(time.Minute)
		for range 5 {
			f.limiters["payments/charge"].TryAcquire()
		}
		both := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge route=charge,team=a")}
		for range 4 {
			if r, err := client.ShouldRateLimit(t.Context(), both); err != nil || codesOf(r) != "OVER_LIMIT [OVER_LIMIT OK]" {
				t.Fatal(r, err)
			}
		}
		r, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge,team=a")})
		if err != nil || field(r, "Ratelimit") != `"team-1m";r=2;t=60` {
			t.Error(r, err)
		}
		s := r.GetStatuses()[0]
		if l := s.GetCurrentLimit(); s.GetLimitRemaining() != 2 || l.GetRequestsPerUnit() != 3 || l.GetUnit() != rlsv3.RateLimitResponse_RateLimit_MINUTE || s.GetDurationUntilReset().AsDuration() != time.Minute {
			t.Error(s)
		}
	})
}

// While a provider is paused nothing is said of its limits, whose windows tell nothing of when that ends.
func TestAPauseIsNoSpentLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, conn := serve(t, rules, map[string]string{"payments/charge": "5/s,5000/h", "teams": "3/m"})
		client := rlsv3.NewRateLimitServiceClient(conn)
		f.limiters["payments/charge"].PauseUntil(time.Now().Add(7 * time.Second))
		r, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge route=charge,team=a")})
		if err != nil {
			t.Fatal(err)
		}
		if codes, limits, retry := codesOf(r), field(r, "Ratelimit"), field(r, "Retry-After"); codes != "OVER_LIMIT [OVER_LIMIT OK]" || limits != `"team-1m";r=3;t=60` || retry != "7" {
			t.Errorf("%s, RateLimit %s, Retry-After %s", codes, limits, retry)
		}
		if s := r.GetStatuses()[0]; s.GetCurrentLimit() != nil || s.GetDurationUntilReset() != nil {
			t.Error(s)
		}
	})
}

func codesOf(r *rlsv3.RateLimitResponse) string {
	var each []rlsv3.RateLimitResponse_Code
	for _, s := range r.GetStatuses() {
		each = append(each, s.GetCode())
	}
	return fmt.Sprint(r.GetOverallCode(), " ", each)
}

func field(r *rlsv3.RateLimitResponse, key string) string {
	var values []string
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == key {
			values = append(values, h.GetValue())
		}
	}
	return strings.Join(values, "|")
}

func TestShouldRateLimitWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, conn := serve(t, "max_wait: 600ms"+rules, map[string]string{"payments/charge": "1/s"})
		client, began := rlsv3.NewRateLimitServiceClient(conn), time.Now()
		request := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge")}
		for k, at := range []time.Duration{0, 0, time.Second} { // the second one is refused at once
			if k == 2 {
				time.Sleep(500 * time.Millisecond)
			}
			r, err := client.ShouldRateLimit(t.Context(), request)
			if err != nil || (r.GetOverallCode() == rlsv3.RateLimitResponse_OK) != (k != 1) || time.Since(began) != at {
				t.Error(k, r, err, time.Since(began))
			}
		}
	})
}

// Permits that come just before the request's context ends are given back: a call is gone.
func TestPermitsOfAGoneCallComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := load(write(t, "max_wait: 10s"+rules))
		if err != nil {
			t.Fatal(err)
		}
		ctx, gone := context.WithCancel(t.Context())
		source := consumer.Fixed(policyOf(t, "3/s"))
		limiter, err := consumer.Open(t.Context(), source, "p", consumer.Options{
			Logger: slog.New(slog.DiscardHandler), OnWait: func(context.Context, time.Duration, error) { gone() },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		limiter.TryTake(3)
		f := &fixed{clock: feed.Inside(source).Clock(), limiters: map[string]*consumer.Limiter{"payments/charge": limiter}}
		s := &limits{rules: m, limiters: f, metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler), calls: listen.NewOccupancy("calls", listen.Bounds{All: 2})}
		began := time.Now()
		r, err := s.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge,2")})
		if status.Code(err) != codes.Canceled || time.Since(began) != time.Second {
			t.Errorf("%v, %v after %v", r, err, time.Since(began))
		}
		if st := limiter.Status(); st.Shortest().Used != 0 {
			t.Errorf("%d permits are used, and nobody has them", st.Shortest().Used)
		}
	})
}

// A client with too many calls under way is refused, without an error: Envoy would let the
// request pass.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, conn := serve(t, "max_wait: 10s"+rules, map[string]string{"payments/charge": "1/s"})
		client := rlsv3.NewRateLimitServiceClient(conn)
		request := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge route=other")}
		codes := make(chan string, 4)
		for range cap(codes) { // the first is served, two wait, and one is too many
			go func() {
				r, err := client.ShouldRateLimit(t.Context(), request)
				if err != nil {
					t.Error(err)
				}
				codes <- codesOf(r)
			}()
			synctest.Wait()
		}
		var got []string
		for range cap(codes) {
			got = append(got, <-codes)
		}
		want := []string{"OK [OK OK]", "OVER_LIMIT [OVER_LIMIT OVER_LIMIT]", "OK [OK OK]", "OK [OK OK]"}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// A connection without calls is let go.
func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, conn := serve(t, rules, map[string]string{"payments/charge": "1/s"})
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge")}); err != nil {
			t.Fatal(err)
		}
		for idle, want := range []connectivity.State{connectivity.Ready, connectivity.Idle} {
			time.Sleep(idleTime - time.Second + time.Duration(idle)*time.Minute)
			synctest.Wait()
			if got := conn.GetState(); got != want {
				t.Errorf("%v, not %v", got, want)
			}
		}
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, conn := serve(t, rules, map[string]string{"payments/charge": "5/s"})
		for _, c := range []struct {
			domain, descriptors, want string
		}{
			{"", "route=charge", "there must be a domain"},
			{"edge", "", "1 to 32 descriptors"},
			{"edge", strings.Repeat("a=b ", 33), "1 to 32 descriptors"},
			{"edge", "route=charge,1000000000001", "must be at most 1000000000000"},
			{"edge", "a=" + strings.Repeat("b", maxMessage), "larger than max"},
		} {
			_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: c.domain, Descriptors: descriptors(c.descriptors)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.40s: %v, not %s", c.descriptors, err, c.want)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, conn := serve(t, rules, map[string]string{"payments/charge": "2/m"})
		for _, d := range []string{"route=charge", "route=charge", "route=charge", "route=charge,1000000000001"} {
			_, _ = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors(d)})
		}
		if err := testutil.CollectAndCompare(f.registry, strings.NewReader(`
# HELP quotad_envoy_calls_total Answers of RateLimitService by code: ok, over_limit, error.
# TYPE quotad_envoy_calls_total counter
quotad_envoy_calls_total{code="error"} 1
quotad_envoy_calls_total{code="ok"} 2
quotad_envoy_calls_total{code="over_limit"} 1
`), "quotad_envoy_calls_total"); err != nil {
			t.Error(err)
		}
	})
}
