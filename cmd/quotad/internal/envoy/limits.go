package envoy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/quota"
)

// maxDescriptors bounds the descriptors of a request.
const maxDescriptors = 32

// limiters are those of the host.
type limiters interface {
	// Limiter returns a provider's limiter, and opens it if need be.
	Limiter(ctx context.Context, provider string) (*consumer.Limiter, error)
	// Clock is the clock of their windows.
	Clock() *clock.Clock
}

// limits is the service RateLimitService.
type limits struct {
	rules    *mapping
	limiters limiters
	metrics  *metrics
	log      *slog.Logger
	seldom   rate.Sometimes    // for what comes with every request
	calls    *listen.Occupancy // under way
}

// hit is a descriptor with a rule.
type hit struct {
	rule    *descriptorRule
	limiter *consumer.Limiter // nil if it could not be opened
	key     string
	from    consumer.Taker // the limiter or its key; nil if it cannot be asked
	cost    int64
}

// ShouldRateLimit implements RateLimitServiceServer. It takes the permits of all
// descriptors that have a rule, or none. A request without a permit is answered
// OVER_LIMIT, whatever the cause: Envoy lets requests pass if there is an error.
func (s *limits) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (response *rlsv3.RateLimitResponse, err error) {
	defer func() { s.metrics.answered(response, err) }()
	client := clientOf(ctx)
	if err := s.calls.Add(client); err != nil {
		s.seldom.Do(func() { s.log.Warn("Envoy's requests are refused", "error", err) })
		return overLimit(len(r.GetDescriptors())), nil
	}
	defer s.calls.Remove(client)
	hits, err := s.match(ctx, r)
	if err != nil {
		return nil, err
	}
	permits, refused := s.take(ctx, hits)
	if ctx.Err() != nil {
		for _, p := range permits {
			p.Release() // nobody hears of them
		}
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return s.answer(hits, refused), nil
}

// match returns a hit for each descriptor; its rule is nil if there is none.
func (s *limits) match(ctx context.Context, r *rlsv3.RateLimitRequest) ([]hit, error) {
	all := r.GetDescriptors()
	if r.GetDomain() == "" || len(all) == 0 || len(all) > maxDescriptors {
		return nil, status.Errorf(codes.InvalidArgument, "domain %.50q with %d descriptors: there must be a domain, and 1 to %d descriptors", r.GetDomain(), len(all), maxDescriptors)
	}
	hits := make([]hit, len(all))
	for i, d := range all {
		rule := s.rules.descriptor(r.GetDomain(), d.GetEntries())
		if rule == nil {
			continue
		}
		cost, err := costOf(d, r.GetHitsAddend())
		if err != nil {
			return nil, err
		}
		hits[i] = hit{rule: rule, cost: cost}
		h := &hits[i]
		if h.limiter, err = s.limiters.Limiter(ctx, rule.Provider); err == nil {
			h.limiter = h.limiter.Class(rule.Class)
			var from consumer.Taker
			if from, h.key, err = rule.from(h.limiter, d.GetEntries()); err == nil {
				h.from = from
			}
		}
		if err != nil {
			s.seldom.Do(func() { s.log.Warn("Envoy's requests are refused", "provider", rule.Provider, "error", err) })
		}
	}
	return hits, nil
}

// costOf returns the permits that a descriptor takes: its own hits, or else the request's.
func costOf(d *commonv3.RateLimitDescriptor, ofRequest uint32) (int64, error) {
	if d.GetHitsAddend() == nil {
		return max(1, int64(ofRequest)), nil
	}
	n := d.GetHitsAddend().GetValue()
	if n > uint64(quota.MaxPermits) {
		return 0, status.Errorf(codes.InvalidArgument, "hits_addend %d: must be at most %d", n, quota.MaxPermits)
	}
	return int64(n), nil
}

// take takes the permits of all hits, or none and returns why.
func (s *limits) take(ctx context.Context, hits []hit) (map[consumer.Taker]consumer.Permit, error) {
	wants := map[consumer.Taker]int64{}
	for i, h := range hits {
		switch {
		case h.rule == nil || h.cost == 0:
		case h.from == nil:
			return nil, errNoLimiter
		default: // two values may stand for one key, or for two classes of one limiter: the first counts
			first := slices.IndexFunc(hits[:i+1], func(o hit) bool { return o.from != nil && o.rule.Provider == h.rule.Provider && o.key == h.key })
			wants[hits[first].from] += h.cost
		}
	}
	if len(wants) == 0 {
		return nil, nil
	}
	permits, err := consumer.TakeAll(ctx, s.rules.maxWait, wants)
	if !slices.ContainsFunc(slices.Collect(maps.Values(permits)), consumer.Permit.InFlight) {
		return permits, err
	}
	for _, p := range permits { // Envoy does not say when a request has ended
		p.Release()
	}
	s.seldom.Do(func() { s.log.Warn("Envoy's requests are refused", "error", errInFlight) })
	return nil, errInFlight
}

// errInFlight is the refusal of a hit whose limit counts calls that are under way.
var errInFlight = errors.New("a limit in flight cannot be kept by Envoy, which does not say when a request has ended: name another provider in the rule")

// errNoLimiter is the refusal of a hit whose limiter could not be opened, or that has no key.
var errNoLimiter = errors.New("there is no limiter")

// overLimit refuses all descriptors of a request that was not looked at.
func overLimit(descriptors int) *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT}
	for range min(descriptors, maxDescriptors) {
		response.Statuses = append(response.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OVER_LIMIT})
	}
	return response
}

// answer returns the response for hits that were refused, or not.
func (s *limits) answer(hits []hit, refused error) *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	limited, _ := errors.AsType[consumer.LimitError](refused)
	now, header := time.Unix(0, s.limiters.Clock().Wall()), http.Header{}
	var spent []ratefields.Use
	for _, h := range hits {
		one := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
		response.Statuses = append(response.Statuses, one)
		if h.rule == nil {
			continue
		}
		var uses []ratefields.Use
		if h.limiter != nil {
			uses = ratefields.UsesOf(h.limiter, h.from)
		}
		least := tightest(uses)
		others := limited.Provider != "" && (limited.Provider != h.rule.Provider || limited.Key != "" && limited.Key != h.key)
		if refused != nil && (!others || least.Left < h.cost) {
			one.Code = rlsv3.RateLimitResponse_OVER_LIMIT
			if !ratefields.CauseOf(refused).Limit {
				continue // see ratefields.Name.Refuse
			}
			for _, u := range uses {
				if u.Left < h.cost {
					spent = append(spent, u)
				}
			}
		}
		h.rule.name.Add(header, uses, now)
		describe(one, &least, now)
	}
	if refused != nil {
		response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		ratefields.Name{}.Refuse(header, http.StatusTooManyRequests, spent, math.MaxInt64, refused, now)
	}
	for key, values := range header {
		for _, v := range values {
			response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &corev3.HeaderValue{Key: key, Value: v})
		}
	}
	return response
}

var units = map[time.Duration]rlsv3.RateLimitResponse_RateLimit_Unit{
	time.Second: rlsv3.RateLimitResponse_RateLimit_SECOND, time.Minute: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	time.Hour: rlsv3.RateLimitResponse_RateLimit_HOUR, 24 * time.Hour: rlsv3.RateLimitResponse_RateLimit_DAY,
}

// tightest returns the use of the limit that has the least left; the zero Use if there is none.
func tightest(uses []ratefields.Use) (least ratefields.Use) {
	if len(uses) > 0 {
		least = slices.MinFunc(uses, func(a, b ratefields.Use) int { return cmp.Compare(a.Left, b.Left) })
	}
	return least
}

// describe writes a limit into a status; nothing if it is the zero Use.
func describe(one *rlsv3.RateLimitResponse_DescriptorStatus, of *ratefields.Use, now time.Time) {
	if of.Limit.Window == 0 {
		return
	}
	one.LimitRemaining = uint32(min(of.Left, math.MaxUint32))
	one.DurationUntilReset = durationpb.New(max(0, of.End.Sub(now)))
	if unit, ok := units[of.Limit.Window]; ok { // Envoy knows no other windows
		one.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: uint32(min(of.Limit.Permits, math.MaxUint32)), Unit: unit}
	}
}
