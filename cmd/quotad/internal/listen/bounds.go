package listen

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
)

// Bounds are the most that clients may hold of something.
type Bounds struct {
	All     int // of all clients; a user has at most half of them
	Process int // of one process of a user
	// AllFlag and ProcessFlag are the flags that set them, for the errors; "" for none.
	AllFlag, ProcessFlag string
}

// Occupancy counts what clients hold, such as connections, within bounds. It is safe for
// concurrent use. Make it with NewOccupancy.
type Occupancy struct {
	what   string
	bounds Bounds

	mu        sync.Mutex
	all       int
	users     map[string]int
	processes map[string]int
}

// NewOccupancy returns one of things that are named in its errors.
func NewOccupancy(what string, b Bounds) *Occupancy {
	return &Occupancy{what: what, bounds: b, users: map[string]int{}, processes: map[string]int{}}
}

// Add counts one for the client, or says why it is one too many. A client without a process
// counts for its user only.
func (t *Occupancy) Add(c fair.Client) error {
	if err := t.addUser(c.User); err != nil {
		return err
	}
	if err := t.addProcess(c.Process); err != nil {
		t.Remove(fair.Client{User: c.User})
		return err
	}
	return nil
}

func (t *Occupancy) addUser(user string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := t.users[user]; {
	case t.all >= t.bounds.All:
		return fmt.Errorf("%d %s are open, which is the most%s", t.all, t.what, hint(t.bounds.AllFlag))
	case n >= max(1, t.bounds.All/2):
		return fmt.Errorf("%s has %d %s, half of what all users may have%s", user, n, t.what, hint(t.bounds.AllFlag))
	}
	t.all++
	t.users[user]++
	return nil
}

func (t *Occupancy) addProcess(process string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.processes[process]; process != "" && n >= t.bounds.Process {
		return fmt.Errorf("%s has %d %s, which is the most%s: wait for answers before sending more", process, n, t.what, hint(t.bounds.ProcessFlag))
	}
	if process != "" {
		t.processes[process]++
	}
	return nil
}

func hint(flag string) string {
	if flag == "" {
		return ""
	}
	return " (--" + flag + ")"
}

// Remove takes back one that Add counted.
func (t *Occupancy) Remove(c fair.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	take(t.users, c.User)
	if c.Process != "" {
		take(t.processes, c.Process)
	}
}

// take takes one away, and leaves no zero.
func take(m map[string]int, key string) {
	if m[key]--; m[key] == 0 {
		delete(m, key)
	}
}

// Open returns how many there are.
func (t *Occupancy) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// Processes returns how many each process has. The caller owns the map.
func (t *Occupancy) Processes() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]int, len(t.processes))
	maps.Copy(all, t.processes)
	return all
}

// Bounded accepts connections within the bounds of an occupancy. Where a connection would be one
// too many, the oldest of those whose client is not known is closed for it: a stranger that
// connects and shows no certificate shuts nobody out.
type Bounded struct {
	net.Listener
	Occupancy *Occupancy
	// Peer tells the client at the other end; one without a process is not known yet.
	Peer func(net.Conn) (fair.Client, error)
	// Refuse, if set, is told of a connection that is one too many, before it is closed.
	Refuse func(net.Conn, error)

	mu      sync.Mutex
	unknown []*Conn // in order
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
	err = l.Occupancy.Add(client)
	for err != nil && l.closeOldest() {
		err = l.Occupancy.Add(client)
	}
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, of: l, counted: client, client: client}
	if client.Process == "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unknown = append(l.unknown, c)
	}
	return c, nil
}

// closeOldest closes the oldest connection of an unknown client; false if there is none.
func (l *Bounded) closeOldest() bool {
	l.mu.Lock()
	var oldest *Conn
	if len(l.unknown) > 0 {
		oldest = l.unknown[0]
	}
	l.mu.Unlock()
	if oldest == nil {
		return false
	}
	_ = oldest.Close()
	return true
}

func (l *Bounded) known(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown = slices.DeleteFunc(l.unknown, func(other *Conn) bool { return other == c })
}

// Conn is a connection that is counted until it is closed.
type Conn struct {
	net.Conn
	of *Bounded

	mu      sync.Mutex
	counted fair.Client // what is to be taken back
	client  fair.Client
	closed  bool
}

// Identify says that the connection is of a client that has shown a certificate of such a
// name, once, and returns why that has one connection too many.
func (c *Conn) Identify(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errors.New("the connection is closed")
	case c.client.Process != "":
		return nil
	}
	if err := c.of.Occupancy.addProcess(name); err != nil {
		return err
	}
	c.counted.Process, c.client = name, fair.Client{User: name, Process: name}
	c.of.known(c)
	return nil
}

// Client returns whose connection it is. Until Identify it has no process.
func (c *Conn) Client() fair.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.of.known(c)
		c.of.Occupancy.Remove(c.counted)
	}
	return c.Conn.Close()
}

// Certificate returns the name by which clients with a certificate are known, given its
// subject.
func Certificate(subject string) string { return "certificate " + subject }

// AnyTCP is a Peer for connections whose client shows a certificate, or stays unknown.
func AnyTCP(net.Conn) (fair.Client, error) { return fair.Client{User: "TCP"}, nil }
