package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	maxStreams = 1000
	maxBuckets = 100  // of a stream
	maxID      = 1024 // bytes of a bucket's ID, as text
)

// quotas is the service RateLimitQuotaService.
type quotas struct {
	ctx     context.Context // of the server: streams end with it
	rules   *mapping
	pools   map[string]*pool // by provider
	metrics *metrics
	log     *slog.Logger
	seldom  rate.Sometimes // for what strangers can cause
}

func newQuotas(ctx context.Context, rules *mapping, l limiters, log *slog.Logger) *quotas {
	q := &quotas{ctx: ctx, rules: rules, pools: map[string]*pool{}, metrics: &metrics{}, log: log, seldom: rate.Sometimes{Interval: time.Minute}}
	for _, provider := range rules.assigned() {
		q.pools[provider] = &pool{provider: provider, limiters: l, log: log, wake: make(chan struct{}, 1)}
	}
	q.metrics.pools = q.pools
	return q
}

// run assigns until the server ends.
func (q *quotas) run() {
	var running sync.WaitGroup
	for _, p := range q.pools {
		running.Go(func() { p.run(q.ctx) })
	}
	running.Wait()
}

// end makes all assignments end.
func (q *quotas) end() {
	for _, p := range q.pools {
		p.end()
	}
}

// StreamRateLimitQuotas implements RateLimitQuotaServiceServer: an Envoy's buckets get
// assignments from their first report until the stream ends.
func (q *quotas) StreamRateLimitQuotas(stream rlqsv3.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	out := &outbox{ready: make(chan struct{}, 1), pending: map[*client]bucket{}}
	defer q.metrics.streams.Add(-1)
	if n := q.metrics.streams.Add(1); n > maxStreams {
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, which is the most", maxStreams)
	}
	ended := make(chan error, 1)
	go func() { ended <- q.receive(stream, out) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-q.ctx.Done():
			return status.Error(codes.Unavailable, "quotad ends")
		case <-out.ready:
			r := out.take()
			if len(r.GetBucketAction()) == 0 {
				continue // it went with the one before
			}
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

// receive reads the reports of a stream until it ends.
func (q *quotas) receive(stream rlqsv3.RateLimitQuotaService_StreamRateLimitQuotasServer, out *outbox) error {
	domain, buckets := "", map[string]*subscription{}
	defer func() {
		for _, s := range buckets {
			if s != nil {
				s.pool.leave(s.client)
			}
		}
	}()
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case domain == "":
			domain = m.GetDomain()
		}
		if domain == "" || m.GetDomain() != "" && m.GetDomain() != domain {
			return status.Errorf(codes.InvalidArgument, "domain %q after %q: name one in the first report, and no other on this stream", m.GetDomain(), domain)
		}
		for _, usage := range m.GetBucketQuotaUsages() {
			id := usage.GetBucketId().GetBucket()
			if len(id) == 0 || len(id) > maxEntries {
				return status.Errorf(codes.InvalidArgument, "a bucket ID has %d keys: it must have 1 to %d", len(id), maxEntries)
			}
			key := fmt.Sprintf("%q", id) // sorted by key
			if len(key) > maxID {
				return status.Errorf(codes.InvalidArgument, "a bucket ID has %d bytes: it must have at most %d", len(key), maxID)
			}
			s, known := buckets[key]
			if !known {
				if len(buckets) == maxBuckets {
					return status.Errorf(codes.ResourceExhausted, "this stream reports more than %d buckets", maxBuckets)
				}
				if s, err = q.subscribe(domain, usage.GetBucketId(), out); err != nil {
					return err
				}
				buckets[key] = s
			}
			if s != nil {
				allowed, denied := q.metrics.reported(usage)
				s.pool.report(s.client, float64(allowed)+float64(denied), time.Now())
			}
		}
	}
}

// subscription is a bucket of a stream; nil for one without a rule.
type subscription struct {
	pool   *pool
	client *client
}

func (q *quotas) subscribe(domain string, id *rlqsv3.BucketId, out *outbox) (*subscription, error) {
	provider, ok := q.rules.bucket(domain, id.GetBucket())
	if !ok {
		q.seldom.Do(func() {
			q.log.Warn("a bucket of Envoy's has no rule: it is assigned nothing", "domain", domain, "bucket", fmt.Sprintf("%.200q", id.GetBucket()))
		})
		return nil, nil
	}
	s := &subscription{q.pools[provider], &client{id: id, outbox: out, rate: -1}}
	if !s.pool.enter(s.client) {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d buckets, which is the most", provider, maxClients)
	}
	return s, nil
}

// outbox has what is to be sent to a stream: the newest assignment of each bucket.
type outbox struct {
	ready chan struct{} // there is something

	mu      sync.Mutex
	pending map[*client]bucket
}

func (o *outbox) put(c *client, b bucket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending[c] = b
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *outbox) take() *rlqsv3.RateLimitQuotaResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &rlqsv3.RateLimitQuotaResponse{}
	for c, b := range o.pending {
		r.BucketAction = append(r.BucketAction, &rlqsv3.RateLimitQuotaResponse_BucketAction{
			BucketId: c.id,
			BucketAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
				QuotaAssignmentAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
					AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: b.strategy(),
				},
			},
		})
	}
	clear(o.pending)
	return r
}

// strategy returns the bucket as Envoy is told it.
func (b bucket) strategy() *typev3.RateLimitStrategy {
	if b == (bucket{}) {
		return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}}
	}
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens: uint32(b.tokens), TokensPerFill: wrapperspb.UInt32(uint32(b.fill)), FillInterval: durationpb.New(fillInterval),
	}}}
}
