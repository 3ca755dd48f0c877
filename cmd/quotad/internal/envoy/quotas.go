package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	*common
	ctx    context.Context  // of the server: streams end with it
	pools  map[string]*pool // by provider
	seldom rate.Sometimes   // for what strangers can cause
}

func newQuotas(ctx context.Context, c *common, l limiters) *quotas {
	q := &quotas{c, ctx, map[string]*pool{}, rate.Sometimes{Interval: time.Minute}}
	for _, provider := range c.rules.assigned() {
		p := &pool{provider: provider, limiters: l, log: c.log, wake: make(chan struct{}, 1)}
		c.metrics.show(p)
		q.pools[provider] = p
	}
	return q
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
	domain, buckets := "", map[string]*client{} // nil for one without a rule
	defer func() {
		for _, c := range buckets {
			if c != nil {
				c.pool.leave(c)
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
			c, known := buckets[key]
			if !known {
				if len(buckets) == maxBuckets {
					return status.Errorf(codes.ResourceExhausted, "this stream reports more than %d buckets", maxBuckets)
				}
				if c, err = q.subscribe(domain, usage.GetBucketId(), out); err != nil {
					return err
				}
				buckets[key] = c
			}
			if c != nil {
				c.pool.report(c, q.metrics.reported(usage), time.Now())
			}
		}
	}
}

// subscribe returns a client for a bucket of a stream; nil if it has no rule.
func (q *quotas) subscribe(domain string, id *rlqsv3.BucketId, out *outbox) (*client, error) {
	provider, ok := q.rules.bucket(domain, id.GetBucket())
	if !ok {
		q.seldom.Do(func() {
			q.log.Warn("a bucket of Envoy's has no rule: it is assigned nothing", "domain", domain, "bucket", fmt.Sprintf("%.200q", id.GetBucket()))
		})
		return nil, nil
	}
	c := &client{pool: q.pools[provider], id: id, outbox: out, rate: -1}
	if !c.pool.enter(c) {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d buckets, which is the most", provider, maxClients)
	}
	return c, nil
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
