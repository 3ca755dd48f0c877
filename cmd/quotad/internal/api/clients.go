package api

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quotient-limiter/quotient/consumer"
)

// clients count what clients have: processes, or holders of a certificate.
type clients struct {
	limits  limits
	refused *prometheus.CounterVec // by bound

	mu          sync.Mutex
	open        int               // connections
	users       counts[string]    // their connections
	connections counts[string]    // of clients
	leased      counts[string]    // leases of clients
	held        counts[holding]   // leased permits
	leases      map[string]*lease // by ID
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
		limits: l, users: counts[string]{}, connections: counts[string]{}, leased: counts[string]{}, held: counts[holding]{}, leases: map[string]*lease{},
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
	gauge("quotad_connections", "Open connections.", func() int { return t.open })
	gauge("quotad_clients", "Processes with connections or leases.", func() int {
		n := len(t.connections)
		for name := range t.leased {
			if t.connections[name] == 0 {
				n++
			}
		}
		return n
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

// connect counts a connection of a user, or says why it is one too many.
func (t *clients) connect(c *connection, user string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := t.users[user]; {
	case t.open >= t.limits.connections:
		return t.refuse(connectionBound, "%d connections are open, which is the most (--max-connections)", t.open)
	case n >= int64(max(1, t.limits.connections/2)):
		return t.refuse(connectionBound, "%s has %d connections, half of what all users may have (--max-connections)", user, n)
	}
	t.open++
	t.users.add(user, 1)
	c.user = user
	return nil
}

// attach counts a connection of a client, once, or says why it is one too many.
func (t *clients) attach(c *connection, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := t.connections[name]; {
	case c.client != "":
		return nil
	case c.user == "":
		return errors.New("the connection is closed")
	case n >= int64(t.limits.perClient):
		return t.refuse(connectionBound, "%s has %d connections, which is the most (--client-connections): wait for answers before sending more", name, n)
	}
	t.connections.add(name, 1)
	c.client = name
	return nil
}

// disconnect takes back what connect and attach counted, once.
func (t *clients) disconnect(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.user == "" {
		return
	}
	t.open--
	t.users.add(c.user, -1)
	c.user = ""
	if c.client != "" {
		t.connections.add(c.client, -1)
	}
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
