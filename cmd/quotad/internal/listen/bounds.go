package listen

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
)

// Bounds are the most that clients may hold of something.
type Bounds struct {
	All    int // of all clients
	Client int // of one
	// AllFlag and ClientFlag are the flags that set them, for the errors; "" for none.
	AllFlag, ClientFlag string
}

// Occupancy counts what clients hold, such as connections, within bounds. A client is known by a
// name: that of a process, or of a certificate. It is safe for concurrent use. Make it with
// NewOccupancy.
type Occupancy struct {
	what   string
	bounds Bounds

	mu      sync.Mutex
	all     int
	clients map[string]int // by name
	unknown []*Conn        // connections of clients that are not known, in order
}

// NewOccupancy returns one of things that are named in its errors.
func NewOccupancy(what string, b Bounds) *Occupancy {
	return &Occupancy{what: what, bounds: b, clients: map[string]int{}}
}

// Add counts one for the client, or says why it is one too many. A client without a name, which
// is not known yet, counts for all only.
func (t *Occupancy) Add(client string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= t.bounds.All {
		return fmt.Errorf("%d %s are open, which is the most%s", t.all, t.what, hint(t.bounds.AllFlag))
	}
	if err := t.countLocked(client); err != nil {
		return err
	}
	t.all++
	return nil
}

// countLocked counts one for the client itself.
func (t *Occupancy) countLocked(client string) error {
	if client == "" {
		return nil
	}
	if n := t.clients[client]; n >= t.bounds.Client {
		return fmt.Errorf("%s has %d %s, which is the most%s: wait for answers before sending more", client, n, t.what, hint(t.bounds.ClientFlag))
	}
	t.clients[client]++
	return nil
}

func hint(flag string) string {
	if flag == "" {
		return ""
	}
	return " (--" + flag + ")"
}

// Remove takes back one that Add counted.
func (t *Occupancy) Remove(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(client)
}

func (t *Occupancy) removeLocked(client string) {
	t.all--
	if client == "" {
		return
	}
	if t.clients[client]--; t.clients[client] == 0 {
		delete(t.clients, client)
	}
}

// Open returns how many there are.
func (t *Occupancy) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// Clients returns how many each client has that is known. The caller owns the map.
func (t *Occupancy) Clients() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.clients)
}

// Bounded accepts connections within the bounds of an occupancy, which several listeners may
// share. Where a connection would be one too many of all, the oldest whose client is not known
// is closed for it: a stranger that connects and shows no certificate shuts nobody out.
type Bounded struct {
	net.Listener
	Occupancy *Occupancy
	// Peer tells the name of the client at the other end; "" if it is not known yet.
	Peer func(net.Conn) (string, error)
	// Refuse, if set, is told of a connection that is one too many, before it is closed.
	Refuse func(net.Conn, error)
}

// Accept returns the next connection that is within the bounds, a *Conn.
func (l *Bounded) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, err := l.count(raw)
		if err == nil {
			return c, nil
		}
		if l.Refuse != nil {
			l.Refuse(raw, err)
		}
		_ = raw.Close()
	}
}

func (l *Bounded) count(raw net.Conn) (*Conn, error) {
	client, err := l.Peer(raw)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, of: l.Occupancy, client: client}
	err = c.of.Add(client)
	for err != nil && c.of.closeOldest() {
		err = c.of.Add(client)
	}
	if err != nil {
		return nil, err
	}
	if client == "" {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.unknown = append(c.of.unknown, c)
	}
	return c, nil
}

// closeOldest closes the oldest connection of an unknown client, if all are open that may be;
// false if it did not.
func (t *Occupancy) closeOldest() bool {
	t.mu.Lock()
	var oldest *Conn
	if t.all >= t.bounds.All && len(t.unknown) > 0 {
		oldest = t.unknown[0]
	}
	t.mu.Unlock()
	if oldest == nil {
		return false
	}
	_ = oldest.Close()
	return true
}

// Conn is a connection that is counted until it is closed.
type Conn struct {
	net.Conn
	of *Occupancy

	// Guarded by of.mu:
	client string // "": not known
	closed bool
}

// Identify says that the connection is of a client that has shown a certificate of such a
// name, once, and returns why that has one connection too many.
func (c *Conn) Identify(name string) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	switch {
	case c.closed:
		return errors.New("the connection is closed")
	case c.client != "":
		return nil
	}
	if err := c.of.countLocked(name); err != nil {
		return err
	}
	c.client = name
	c.of.knownLocked(c)
	return nil
}

// knownLocked forgets a connection that no newcomer may push out any more.
func (t *Occupancy) knownLocked(c *Conn) {
	t.unknown = slices.DeleteFunc(t.unknown, func(other *Conn) bool { return other == c })
}

// Client returns the name of the client whose connection it is; "" until Identify.
func (c *Conn) Client() string {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.client
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.of.mu.Lock()
	if !c.closed {
		c.closed = true
		c.of.knownLocked(c)
		c.of.removeLocked(c.client)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Certificate returns the name by which clients with a certificate are known, given its
// subject.
func Certificate(subject string) string { return "certificate " + subject }

// Ours reports whether a client is a process of the user who runs this one, by the name that Peer gave it.
func Ours(client string) bool {
	return strings.HasPrefix(client, "process ") && strings.HasSuffix(client, fmt.Sprintf(" of user %d", os.Geteuid()))
}

// AnyTCP is a Peer for connections whose client shows a certificate, or stays unknown.
func AnyTCP(net.Conn) (string, error) { return "", nil }
