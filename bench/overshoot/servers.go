package main

import (
	"context"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/bench/peer"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

// daemons are those of gubernator's cluster; processes call them by turn.
const daemons = 2

// service is what the processes of a run share.
type service struct {
	addresses []string
	lower     func(ctx context.Context, limit int64) error // nil: the processes are told
	close     func()
}

// address returns the address for a process.
func (s *service) address(i int) string {
	if len(s.addresses) == 0 {
		return ""
	}
	return s.addresses[i%len(s.addresses)]
}

// serve starts what a limiter needs.
func (k kind) serve(ctx context.Context, t *tools, p *contender, folder string) (*service, error) {
	switch k {
	case inRedis:
		r, err := peer.StartRedis(ctx, folder)
		if err != nil {
			return nil, err
		}
		return &service{addresses: []string{r.Socket}, close: func() { _ = r.Close() }}, nil
	case gubernator:
		cluster, err := embedded.Start(embedded.Options{Processes: true})
		if err != nil {
			return nil, err
		}
		all, err := peer.StartGubernator(ctx, t.gubernator, daemons, 0, cluster.Endpoints())
		if err != nil {
			_ = cluster.Close()
			return nil, err
		}
		s := &service{close: func() {
			defer cluster.Close()
			for _, g := range all {
				_ = g.Close()
			}
		}}
		for _, g := range all {
			s.addresses = append(s.addresses, g.Address)
		}
		return s, nil
	case etcd:
		return serveEtcd(ctx, p.policy)
	default:
		return &service{close: func() {}}, nil
	}
}

// policy returns the policy of Quotient.
func (p *contender) policy(limit int64) quota.Policy {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Second}}}
	policy.Guard = 20 * time.Millisecond
	if policy.Shape = quota.Shape(p.shape); p.shape == "" {
		policy.Guard = 50 * time.Millisecond
	}
	return policy
}

func serveEtcd(ctx context.Context, policy func(limit int64) quota.Policy) (*service, error) {
	cluster, err := embedded.Start(embedded.Options{Processes: true})
	if err != nil {
		return nil, err
	}
	s := &service{addresses: []string{strings.Join(cluster.Endpoints(), ",")}, close: func() { _ = cluster.Close() }}
	client, err := cluster.Client()
	if err != nil {
		s.close()
		return nil, err
	}
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	if err != nil {
		s.close()
		return nil, err
	}
	s.lower = func(ctx context.Context, limit int64) error {
		_, err := operator.Put(ctx, "bench", policy(limit))
		return err
	}
	if err := s.lower(ctx, *limit); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}
