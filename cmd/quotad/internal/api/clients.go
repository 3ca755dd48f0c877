package api

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
)

// clients count what clients have: processes, or holders of a certificate.
type clients struct {
	limits  limits
	refused *prometheus.CounterVec // by bound
	log     *slog.Logger
	seldom  rate.Sometimes // for what a client can cause at will

	connections *listen.Occupancy

	mu     sync.Mutex
	ids    map[string]int    // of clients, by name; no zeros
	grants map[string]*grant // by ID
}

// grant is what a call got, until it is settled or can no longer be.
type grant struct {
	id      string
	client  string // that asked
	parts   []part
	permits []consumer.Permit // of each
	expires *time.Timer
}

// ofFlight returns the permits of limits in flight.
func (g *grant) ofFlight() (all []consumer.Permit) {
	for _, p := range g.permits {
		if p.InFlight() {
			all = append(all, p)
		}
	}
	return all
}

func (g *grant) inFlight() bool { return slices.ContainsFunc(g.permits, consumer.Permit.InFlight) }

// done says that the calls have ended.
func (g *grant) done() {
	for _, p := range g.permits {
		p.Done()
	}
}

// release gives all permits back: nobody heard of them.
func (g *grant) release() {
	for _, p := range g.permits {
		p.Release()
	}
}

// The values of refused's label.
const (
	connectionBound = "connections"
	idBound         = "ids"
)

func newClients(l limits, r prometheus.Registerer, log *slog.Logger) *clients {
	show := promauto.With(r)
	t := &clients{
		limits: l, connections: listen.NewOccupancy("connections", listen.Bounds{
			All: l.connections, AllFlag: "max-connections", Client: l.perClient, ClientFlag: "client-connections",
		}),
		log: log, seldom: rate.Sometimes{Interval: time.Minute},
		ids: map[string]int{}, grants: map[string]*grant{},
		refused: show.NewCounterVec(prometheus.CounterOpts{
			Name: "quotad_refused_total", Help: "Connections and calls refused because a client had as much as it may have, by bound.",
		}, []string{"bound"}),
	}
	for _, bound := range []string{connectionBound, idBound} {
		t.refused.WithLabelValues(bound) // from 0 on
	}
	gauge := func(name, help string, value func() int) {
		show.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(value())
		})
	}
	gauge("quotad_connections", "Open connections.", t.connections.Open)
	gauge("quotad_clients", "Processes with connections or IDs.", func() int {
		all := t.connections.Clients()
		for name := range t.ids {
			all[name]++
		}
		return len(all)
	})
	return t
}

// refuse counts a refusal, and logs the client from time to time.
func (t *clients) refuse(bound string, why error) {
	t.refused.WithLabelValues(bound).Inc()
	t.seldom.Do(func() { t.log.Warn("a client is refused", "bound", bound, "because", why) })
}

// room counts an ID that a client asks for, or returns an error if it has as many as it may
// have. The caller ends the ID by end, or by noID if there are no permits for it.
func (t *clients) room(client string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.ids[client]; n >= t.limits.perClient {
		err := fmt.Errorf("%s has %d IDs, which is the most (--client-connections): settle some, or end calls", client, n)
		t.refuse(idBound, err)
		return err
	}
	t.ids[client]++
	return nil
}

// noID takes back what room counted.
func (t *clients) noID(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noIDLocked(client)
}

func (t *clients) noIDLocked(client string) {
	if t.ids[client]--; t.ids[client] == 0 {
		delete(t.ids, client)
	}
}

// enter enters a grant, whose ID is counted. It ends after d by itself. Its calls may last no longer: the limiter ends
// them then, and counts them as forgotten, since their client has died, or did not end them.
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
	if g := t.grants[id]; g != nil && g.client == client {
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
	t.noIDLocked(g.client)
	return true
}
