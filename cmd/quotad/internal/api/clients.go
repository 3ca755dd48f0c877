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

	connections *listen.Occupancy

	mu     sync.Mutex
	ids    counts[string]    // of clients
	held   counts[holding]   // permits of partial calls
	grants map[string]*grant // by ID
}

type holding struct{ client, provider string }

// counts has no zeros.
type counts[K comparable] map[K]int64

func (c counts[K]) add(k K, n int64) {
	if c[k] += n; c[k] == 0 {
		delete(c, k)
	}
}

// grant is what a call got, until it is settled or can no longer be.
type grant struct {
	id      string
	of      holding
	held    int64 // permits of a partial call
	parts   []*part
	permits []consumer.Permit // of each
	expires *time.Timer
}

// The values of refused's label.
const (
	connectionBound = "connections"
	idBound         = "ids"
	heldBound       = "held permits"
)

func newClients(l limits, r prometheus.Registerer) *clients {
	show := promauto.With(r)
	t := &clients{
		limits: l, connections: listen.NewOccupancy("connections", listen.Bounds{
			All: l.connections, AllFlag: "max-connections", Process: l.perClient, ProcessFlag: "client-connections",
		}),
		ids: counts[string]{}, held: counts[holding]{}, grants: map[string]*grant{},
		refused: show.NewCounterVec(prometheus.CounterOpts{
			Name: "quotad_refused_total", Help: "Connections and calls refused because a client had as much as it may have, by bound.",
		}, []string{"bound"}),
	}
	for _, bound := range []string{connectionBound, idBound, heldBound} {
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
	gauge("quotad_clients", "Processes with connections or IDs.", func() int {
		all := t.connections.Processes()
		for name := range t.ids {
			all[name]++
		}
		return len(all)
	})
	gauge("quotad_held_permits", "Permits of partial calls that are not settled.", func() (sum int) {
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

// room counts an ID that a client asks for, or returns an error if it has as many as it may
// have. The caller ends the ID by end, or by noID if there are no permits for it.
func (t *clients) room(client string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ids := t.ids[client]; ids >= int64(t.limits.perClient) {
		return t.refuse(idBound, "%s has %d IDs, which is the most (--client-connections): settle some", client, ids)
	}
	t.ids.add(client, 1)
	return nil
}

// noID takes back what room counted.
func (t *clients) noID(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids.add(client, -1)
}

// reserve counts permits that a partial call is about to take: at most n, and with those
// that the client holds at most its part. It returns how many.
func (t *clients) reserve(h holding, n, part int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n = min(n, part-t.held[h]); n <= 0 {
		return 0, t.refuse(heldBound, "%s holds %d permits of %s, its part of this host's share: use or settle them", h.client, t.held[h], h.provider)
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

// enter enters a grant, whose permits and ID are counted. It ends after d by itself.
func (t *clients) enter(g *grant, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grants[g.id] = g
	g.expires = time.AfterFunc(d, func() { t.end(g) })
}

// grant returns a client's grant; nil if it has none of that ID.
func (t *clients) grant(client, id string) *grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.grants[id]; g != nil && g.of.client == client {
		return g
	}
	return nil
}

// end removes a grant; false if it ended before.
func (t *clients) end(g *grant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grants[g.id] != g {
		return false
	}
	g.expires.Stop()
	delete(t.grants, g.id)
	t.ids.add(g.of.client, -1)
	t.held.add(g.of, -g.held)
	return true
}
