package api

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// Limits bound what clients may hold. A connection has at most one call under way, so
// they bound the calls that run and wait too.
type Limits struct {
	// Connections is the most of all clients; a user has at most half of them.
	Connections int
	// PerClient is the most connections of one client, and the most leases.
	PerClient int
}

// clients are the processes that have connections or leases.
type clients struct {
	limits  Limits
	refused *refusals

	mu    sync.Mutex
	all   map[string]*client
	users map[string]int // connections by user
	open  int            // connections
}

// client is a process, or the holder of a certificate.
type client struct {
	name string

	// Guarded by clients.mu:
	connections int
	leases      map[string]*lease
	held        map[string]int64 // leased permits by provider
}

type lease struct {
	id, provider string
	permit       consumer.Permit
	n            int64 // permits
	expires      *time.Timer
}

// refusals count what the limits refused.
type refusals struct{ connections, leases, held atomic.Int64 }

func newClients(l Limits) *clients {
	return &clients{limits: l, refused: &refusals{}, all: map[string]*client{}, users: map[string]int{}}
}

// connect counts a connection of a user, or says why it is one too many.
func (t *clients) connect(user string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.open >= t.limits.Connections:
		t.refused.connections.Add(1)
		return fmt.Errorf("%d connections are open, which is the most (--max-connections)", t.open)
	case t.users[user] >= max(1, t.limits.Connections/2):
		t.refused.connections.Add(1)
		return fmt.Errorf("%s has %d connections, half of what all users may have (--max-connections)", user, t.users[user])
	}
	t.open++
	t.users[user]++
	return nil
}

// disconnect takes back what connect counted, and attach for a client that is not nil.
func (t *clients) disconnect(user string, c *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if t.users[user]--; t.users[user] == 0 {
		delete(t.users, user)
	}
	if c != nil {
		c.connections--
		t.forgetLocked(c)
	}
}

// attach counts a connection of a client, or says why it is one too many.
func (t *clients) attach(name string) (*client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[name]
	if c == nil {
		c = &client{name: name, leases: map[string]*lease{}, held: map[string]int64{}}
		t.all[name] = c
	}
	if c.connections >= t.limits.PerClient {
		t.refused.connections.Add(1)
		return nil, fmt.Errorf("%s has %d connections, which is the most (--client-connections): wait for answers before sending more", name, c.connections)
	}
	c.connections++
	return c, nil
}

func (t *clients) forgetLocked(c *client) {
	if c.connections == 0 && len(c.leases) == 0 && len(c.held) == 0 && t.all[c.name] == c {
		delete(t.all, c.name)
	}
}

// reserve counts permits that a client is about to lease: at most n, and with those that
// it holds at most its part. It returns how many.
func (t *clients) reserve(c *client, provider string, n, part int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(c.leases) >= t.limits.PerClient {
		t.refused.leases.Add(1)
		return 0, fmt.Errorf("%s has %d leases, which is the most (--client-connections): return some", c.name, len(c.leases))
	}
	held := c.held[provider]
	if n = min(n, part-held); n <= 0 {
		t.refused.held.Add(1)
		return 0, fmt.Errorf("%s holds %d leased permits of %s, its part of this host's share: use or return them", c.name, held, provider)
	}
	c.held[provider] = held + n
	return n, nil
}

// unreserve takes back what reserve counted.
func (t *clients) unreserve(c *client, provider string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreserveLocked(c, provider, n)
}

func (t *clients) unreserveLocked(c *client, provider string, n int64) {
	if c.held[provider] -= n; c.held[provider] <= 0 {
		delete(c.held, provider)
	}
	t.forgetLocked(c)
}

// lend enters a lease whose permits are reserved. It ends after d by itself.
func (t *clients) lend(c *client, l *lease, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.leases[l.id] = l
	l.expires = time.AfterFunc(d, func() { t.end(c, l.id) })
}

// lease returns a client's lease; nil if it has none of that name.
func (t *clients) lease(c *client, id string) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.leases[id]
}

// end removes a lease; false if it ended before.
func (t *clients) end(c *client, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := c.leases[id]
	if l == nil {
		return false
	}
	l.expires.Stop()
	delete(c.leases, id)
	t.unreserveLocked(c, l.provider, l.n)
	return true
}

// count returns the clients, their connections and the permits that they hold.
func (t *clients) count() (clients, connections int, held int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		for _, n := range c.held {
			held += n
		}
	}
	return len(t.all), t.open, held
}
