package api

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
)

// clients count what clients have: processes, or holders of a certificate.
type clients struct {
	limits  limits
	refused *prometheus.CounterVec // by bound

	connections *listen.Tally

	mu     sync.Mutex
	leased counts[string]    // leases of clients
	held   counts[holding]   // leased permits
	leases map[string]*lease // by ID
}

type holding struct{ client, provider string }

// counts has no zeros.
type counts[K comparable] map[K]int64

func (c counts[K]) add(k K, n int64) {
	if c[k] += n; c[k] == 0 {
		delete(c, k)
	}
}

type lease struct {
	id      string
	of      holding
	permit  consumer.Permit
	n       int64 // permits
	expires *time.Timer
}

// The values of refused's label.
const (
	connectionBound = "connections"
	leaseBound      = "leases"
	heldBound       = "leased permits"
)

func newClients(l limits, r prometheus.Registerer) *clients {
	show := promauto.With(r)
	t := &clients{
		limits: l, connections: listen.NewTally("connections", listen.Bounds{
			All: l.connections, AllFlag: "max-connections", Process: l.perClient, ProcessFlag: "client-connections",
		}),
		leased: counts[string]{}, held: counts[holding]{}, leases: map[string]*lease{},
		refused: show.NewCounterVec(prometheus.CounterOpts{
			Name: "quotad_refused_total", Help: "Connections and calls refused because a client had as much as it may have, by bound.",
		}, []string{"bound"}),
	}
	for _, bound := range []string{connectionBound, leaseBound, heldBound} {
		t.refused.WithLabelValues(bound) // from 0 on
	}
	gauge := func(name, help string, value func() int) {
		show.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(value())
		})
	}
	gauge("quotad_connections", "Open connections.", func() int { return t.connections.Open() })
	gauge("quotad_clients", "Processes with connections or leases.", func() int {
		all := t.connections.Processes()
		for name := range t.leased {
			all[name]++
		}
		return len(all)
	})
	gauge("quotad_leased_permits", "Permits in leases that have not ended.", func() (sum int) {
		for _, n := range t.held {
			sum += int(n)
		}
		return sum
	})
	return t
}

// refuse counts a refusal and returns its reason.
func (t *clients) refuse(bound, format string, args ...any) error {
	t.refused.WithLabelValues(bound).Inc()
	return fmt.Errorf(format, args...)
}

// reserve counts permits that a client is about to lease: at most n, and with those that
// it holds at most its part. It returns how many.
func (t *clients) reserve(h holding, n, part int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if leases := t.leased[h.client]; leases >= int64(t.limits.perClient) {
		return 0, t.refuse(leaseBound, "%s has %d leases, which is the most (--client-connections): return some", h.client, leases)
	}
	if n = min(n, part-t.held[h]); n <= 0 {
		return 0, t.refuse(heldBound, "%s holds %d leased permits of %s, its part of this host's share: use or return them", h.client, t.held[h], h.provider)
	}
	t.held.add(h, n)
	return n, nil
}

// unreserve takes back what reserve counted.
func (t *clients) unreserve(h holding, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held.add(h, -n)
}

// lend enters a lease whose permits are reserved. It ends after d by itself.
func (t *clients) lend(l *lease, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[l.id] = l
	t.leased.add(l.of.client, 1)
	l.expires = time.AfterFunc(d, func() { t.end(l) })
}

// lease returns a client's lease; nil if it has none of that name.
func (t *clients) lease(client, id string) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leases[id]; l != nil && l.of.client == client {
		return l
	}
	return nil
}

// end removes a lease; false if it ended before.
func (t *clients) end(l *lease) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases[l.id] != l {
		return false
	}
	l.expires.Stop()
	delete(t.leases, l.id)
	t.leased.add(l.of.client, -1)
	t.held.add(l.of, -l.n)
	return true
}
