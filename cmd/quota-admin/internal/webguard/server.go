package webguard

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// MaxConnections is how many are open at once. One more closes another: that which
// has been without a known caller for longest, of the address with the most. So
// nobody is locked out by connections that say nothing, nor by those of another
// address.
const MaxConnections = 256

// Server returns a server with bounds on what a slow or talkative client can
// hold. A handler that streams extends the deadlines of its own connection.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	open := &connections{all: map[net.Conn]*connection{}}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       15 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         open.changed,
		ConnContext:       open.context,
	}
}

type connection struct {
	address string
	since   time.Time // of the last change of its state
	busy    int       // requests of known callers that are being served
}

type connections struct {
	mu  sync.Mutex
	all map[net.Conn]*connection
}

type busyKey struct{}

func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, busyKey{}, func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if k := c.all[conn]; k != nil {
			k.busy += n
		}
	})
}

// known notes that a request's caller is known, until the returned function is
// called.
func known(ctx context.Context) func() {
	busy, _ := ctx.Value(busyKey{}).(func(int))
	if busy == nil {
		return func() {}
	}
	busy(1)
	return func() { busy(-1) }
}

// changed counts connections, and closes one where there are too many.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // "" for all that is no network
		if len(c.all) >= MaxConnections {
			c.closeOneLocked()
		}
		c.all[conn] = &connection{address: host, since: time.Now()}
	case http.StateActive, http.StateIdle:
		if known := c.all[conn]; known != nil {
			known.since = time.Now()
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
	}
}

func (c *connections) closeOneLocked() {
	of := map[string]int{}
	for _, k := range c.all {
		of[k.address]++
	}
	victim := slices.MinFunc(slices.Collect(maps.Keys(c.all)), func(x, y net.Conn) int {
		a, b := c.all[x], c.all[y]
		return cmp.Or(cmp.Compare(min(a.busy, 1), min(b.busy, 1)), cmp.Compare(of[b.address], of[a.address]), a.since.Compare(b.since))
	})
	delete(c.all, victim)
	if secure, ok := victim.(*tls.Conn); ok {
		victim = secure.NetConn() // without a farewell, which could take seconds
	}
	_ = victim.Close()
}

// Loopback reports whether the address, HOST:PORT, is reached from this machine
// only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
