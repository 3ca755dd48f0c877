package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// fixed are limiters of policies by provider, without etcd.
type fixed struct {
	clock    *clock.Clock
	limiters map[string]*consumer.Limiter
	sources  map[string]*consumer.FixedSource
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
func serve(t *testing.T, rules string, policies map[string]string) (*fixed, *Server, *grpc.ClientConn) {
	t.Helper()
	m, err := load(write(t, rules))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixed{limiters: map[string]*consumer.Limiter{}, sources: map[string]*consumer.FixedSource{}}
	for name, limits := range policies {
		f.sources[name] = consumer.Fixed(policyOf(t, limits))
		f.clock = f.sources[name].Clock()
		if f.limiters[name], err = consumer.Open(t.Context(), f.sources[name], name, consumer.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
	l := bufconn.Listen(1 << 16)
	s := newServer(l, m, f, f, slog.New(slog.DiscardHandler))
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
	return f, s, conn
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
buckets:
- {domain: edge, bucket: {name: search}, provider: search}
- {domain: edge, bucket: {name: slow}, provider: slow}
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
		f, _, conn := serve(t, rules, map[string]string{"payments/charge": "5/s", "teams": "3/m", "search": "9/s"})
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
		_, _, conn := serve(t, "max_wait: 600ms"+rules, map[string]string{"payments/charge": "1/s"})
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

func TestBadRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
		defer done()
		_, s, conn := serve(t, rules, map[string]string{"payments/charge": "5/s", "search": "9/s"})
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
		for _, c := range []struct {
			want    string
			reports []*rlqsv3.RateLimitQuotaUsageReports
		}{
			{`domain ""`, []*rlqsv3.RateLimitQuotaUsageReports{report("", "search", 1)}},
			{`domain "b" after "edge"`, []*rlqsv3.RateLimitQuotaUsageReports{report("edge", "search", 1), report("b", "search", 1)}},
			{"a bucket ID has 0 keys", []*rlqsv3.RateLimitQuotaUsageReports{{Domain: "edge", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{{}}}}},
			{"more than 100 buckets", many(maxBuckets + 1)},
			{"at most 1024", []*rlqsv3.RateLimitQuotaUsageReports{report("edge", strings.Repeat("b", 1024), 1)}},
		} {
			stream, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.reports {
				_ = stream.Send(r)
			}
			if _, err := stream.Recv(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %s", err, c.want)
			}
		}
		synctest.Wait()
		if n := s.quotas.metrics.streams.Swap(maxStreams); n != 0 {
			t.Errorf("%d streams are open", n)
		}
		stream, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), "1000 streams are open") {
			t.Error(err)
		}
		synctest.Wait()
		s.quotas.metrics.streams.Add(-maxStreams)
	})
}

func report(domain, bucket string, requests uint64) *rlqsv3.RateLimitQuotaUsageReports {
	return &rlqsv3.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &rlqsv3.BucketId{Bucket: map[string]string{"name": bucket, "more": "x"}}, NumRequestsAllowed: requests / 2, NumRequestsDenied: requests - requests/2,
	}}}
}

func many(n int) (all []*rlqsv3.RateLimitQuotaUsageReports) {
	for k := range n {
		all = append(all, report("edge", fmt.Sprint("unknown", k), 1))
	}
	return all
}

// stream is an Envoy, as far as a server sees it.
type stream struct {
	rlqsv3.RateLimitQuotaService_StreamRateLimitQuotasClient
	got   chan *rlqsv3.RateLimitQuotaResponse
	ended chan error
}

func open(ctx context.Context, t *testing.T, conn *grpc.ClientConn, bucket string) *stream {
	t.Helper()
	s, err := rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(report("edge", bucket, 1)); err != nil {
		t.Fatal(err)
	}
	st := &stream{s, make(chan *rlqsv3.RateLimitQuotaResponse, 1000), make(chan error, 1)}
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				st.ended <- err
				return
			}
			st.got <- r
		}
	}()
	return st
}

// newest returns the newest assignment; -1 if none has come since the last call, and 0 for
// nothing at all.
func (s *stream) newest() (tokens, fill int64) {
	synctest.Wait()
	tokens, fill = -1, -1
	for len(s.got) > 0 {
		a := (<-s.got).GetBucketAction()
		q := a[len(a)-1].GetQuotaAssignmentAction()
		b := q.GetRateLimitStrategy().GetTokenBucket()
		tokens, fill = int64(b.GetMaxTokens()), int64(b.GetTokensPerFill().GetValue())
		if q.GetAssignmentTimeToLive().AsDuration() != ttl {
			return math.MinInt64, 0
		}
	}
	return tokens, fill
}

// expect fails the test unless the newest assignment costs about n permits.
func (s *stream) expect(t *testing.T, what string, n int64) {
	t.Helper()
	tokens, fill := s.newest()
	if cost := (bucket{tokens, fill}).cost(time.Second); cost > n || cost < n*7/8-2 || tokens < 0 {
		t.Errorf("%s: an assignment of %d tokens and %d more a minute costs %d permits, not about %d", what, tokens, fill, cost, n)
	}
}

func TestAssignments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, server, conn := serve(t, rules, map[string]string{"search": "800/s", "slow": "500/s,9000/m"})
		first := open(t.Context(), t, conn, "search")
		if tokens, _ := first.newest(); tokens >= 0 {
			t.Error("assigned while the assignments of a former process may last")
		}
		time.Sleep(ttl + slack)
		first.expect(t, "alone", 800)
		time.Sleep(10 * time.Second)
		first.expect(t, "10 s later", 800)
		if used := f.limiters["search"].Status().Shortest().Used; used < 790 {
			t.Errorf("%d permits are set aside for an assignment of 800", used)
		}

		ctx, leave := context.WithCancel(t.Context())
		second := open(ctx, t, conn, "search")
		time.Sleep(10 * time.Second)
		first.expect(t, "one of two", 400)
		second.expect(t, "two of two", 400)
		for range 20 { // the first one needs little
			_ = first.Send(report("edge", "search", 50))
			_ = second.Send(report("edge", "search", 2000))
			time.Sleep(time.Second)
		}
		first.expect(t, "a small demand", 100) // an eighth of the share, at the least
		second.expect(t, "a large demand", 700)

		leave()
		for range 10 {
			_ = first.Send(report("edge", "search", 900))
			time.Sleep(time.Second)
		}
		first.expect(t, "alone again", 800)
		if err := f.sources["search"].Set(policyOf(t, "100/s")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		first.expect(t, "a lower limit", 100)
		slow := open(t.Context(), t, conn, "slow")
		time.Sleep(time.Second)
		slow.expect(t, "two limits", 0)
		if used := f.limiters["slow"].Status().Shortest().Used; used != 0 {
			t.Errorf("%d permits are taken for nothing", used)
		}
		sliding := policyOf(t, "500/s")
		sliding.Shape = quota.ShapeSliding
		if err := f.sources["slow"].Set(sliding); err != nil {
			t.Fatal(err)
		}
		f.limiters["slow"].TryTake(10)
		time.Sleep(10700 * time.Millisecond)
		slow.expect(t, "another shape", 0)
		server.Leave()
		time.Sleep(time.Millisecond)
		first.expect(t, "leaving", 0)
	})
}

// Requests beyond the share are demand: permits refused, once in a window.
func TestReportsAreDemand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _, conn := serve(t, rules, map[string]string{"search": "800/s"})
		time.Sleep(300 * time.Millisecond) // no report comes as a window begins
		s := open(t.Context(), t, conn, "search")
		refused := func(requests uint64) int64 {
			for range 10 {
				_ = s.Send(report("edge", "search", requests))
				time.Sleep(time.Second)
			}
			before := f.limiters["search"].Status().Refused
			_ = s.Send(report("edge", "search", requests))
			time.Sleep(time.Second)
			return f.limiters["search"].Status().Refused - before
		}
		if n := refused(400); n != 0 {
			t.Errorf("%d permits are refused, with half of the share in use", n)
		}
		if n := refused(2000); n != int64(2000*headroom)+2-800 {
			t.Errorf("%d permits are refused", n)
		}
	})
}

// Demand counts once in a window, however often the permits are asked for: while there are
// none, and as the next window begins.
func TestDemandCountsOnceInAWindow(t *testing.T) {
	t.Parallel()
	for limits, want := range map[string]int64{
		"800/10s": int64(10*2000*headroom) + 2, // all, for somebody else has the permits
		"800/s":   int64(2000*headroom) + 2 - 800,
	} {
		t.Run(limits, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, _, conn := serve(t, rules, map[string]string{"search": limits})
				f.clock = clock.NewSkewed(func(int64) time.Duration { return -time.Microsecond }) // the limiter's next window comes sooner
				limiter := f.limiters["search"]
				others := limiter.TryTake(800)
				s := open(t.Context(), t, conn, "search")
				time.Sleep(time.Second)
				_ = s.Send(report("edge", "search", 2000))
				time.Sleep(2900 * time.Millisecond)
				for range 3 {
					if n := limiter.Status().Refused; n != want {
						t.Errorf("%d permits are refused, not %d", n, want)
					}
					if limits == "800/10s" {
						time.Sleep(time.Second)
					}
				}
				others.Release()
				time.Sleep(renewal)
				if used := limiter.Status().Shortest().Used; used != 800 {
					t.Errorf("%d permits are set aside, of 800 that were given back or are new", used)
				}
			})
		})
	}
}

// Nothing is assigned for permits that somebody else has taken. In a long window, an
// assignment is renewed before it ends.
func TestAssignmentsAreOfPermitsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(500 * time.Millisecond)
		f, _, conn := serve(t, rules, map[string]string{"search": "800/10s"})
		s := open(t.Context(), t, conn, "search")
		time.Sleep(ttl)
		f.limiters["search"].TryTake(500)
		time.Sleep(slack)
		synctest.Wait()
		for range 5 {
			tokens, fill := s.newest()
			if cost := (bucket{tokens, fill}).cost(10 * time.Second); cost > 300 || cost < 270 {
				t.Errorf("%d tokens and %d more a minute cost %d permits, not about 300", tokens, fill, cost)
			}
			time.Sleep(renewal)
		}
	})
}

// An Envoy learns within milliseconds that the share has fallen to nothing.
func TestAPauseEndsAssignments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _, conn := serve(t, rules, map[string]string{"search": "800/s"})
		s := open(t.Context(), t, conn, "search")
		time.Sleep(5500 * time.Millisecond)
		s.expect(t, "before", 800)
		p := policyOf(t, "800/s")
		p.Mode = quota.ModePause
		if err := f.sources["search"].Set(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(510 * time.Millisecond)
		s.expect(t, "10 ms after the window's start", 0)
	})
}

// A pause that the provider has asked for counts within a second, also within a window.
func TestABackoffEndsAssignments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _, conn := serve(t, rules, map[string]string{"search": "8000/10s"})
		s := open(t.Context(), t, conn, "search")
		time.Sleep(5500 * time.Millisecond)
		if tokens, _ := s.newest(); tokens < 8000/burst-1 {
			t.Errorf("%d tokens before", tokens)
		}
		f.limiters["search"].PauseUntil(time.Now().Add(30 * time.Second))
		time.Sleep(time.Second)
		s.expect(t, "within the window", 0)
		time.Sleep(50 * time.Second)
		if tokens, _ := s.newest(); tokens < 8000/burst-1 {
			t.Errorf("%d tokens after", tokens)
		}
	})
}

// With a guard, the permits of a window are had later than its start, and assignments last.
func TestAssignmentsWithAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _, conn := serve(t, rules, map[string]string{"search": "800/s"})
		p := policyOf(t, "800/s")
		p.Guard = 100 * time.Millisecond
		if err := f.sources["search"].Set(p); err != nil {
			t.Fatal(err)
		}
		s := open(t.Context(), t, conn, "search")
		time.Sleep(20 * time.Second)
		s.expect(t, "with a guard", 800)
		for range 30 {
			time.Sleep(time.Second)
			if tokens, _ := s.newest(); tokens != 800/burst-1 && tokens != 800/burst {
				t.Fatalf("assigned anew: %d tokens", tokens)
			}
		}
	})
}

func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, server, conn := serve(t, rules, map[string]string{"search": "800/s"})
		s := open(t.Context(), t, conn, "search")
		synctest.Wait()
		began := time.Now()
		if err := server.Shutdown(t.Context()); err != nil || time.Since(began) > 0 {
			t.Error(err, time.Since(began))
		}
		synctest.Wait()
		if err := <-s.ended; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}
