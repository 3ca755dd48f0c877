package hours_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// line is the way of one client to the server. While it is held nothing passes
// either way, and connections stay up: a network that drops all packets.
type line struct {
	network *network
	delay   atomic.Int64 // of everything that the server sends

	mu      sync.Mutex
	passing chan struct{} // closed while bytes pass
}

func newLine(n *network) *line {
	l := &line{network: n, passing: make(chan struct{})}
	close(l.passing)
	return l
}

func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passing = make(chan struct{})
}

// open mends the line if it is held.
func (l *line) open() {
	l.mu.Lock()
	passing := l.passing
	l.mu.Unlock()
	select {
	case <-passing:
	default:
		l.mend()
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.passing)
}

func (l *line) wait() {
	l.mu.Lock()
	passing := l.passing
	l.mu.Unlock()
	<-passing
}

func (l *line) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := l.network.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &lineConn{late(c, &l.delay), l}, nil
}

// lineConn is a connection over a line.
type lineConn struct {
	net.Conn
	line *line
}

func (c *lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.line.wait()
	return n, err
}

func (c *lineConn) Write(b []byte) (int, error) {
	c.line.wait()
	return c.Conn.Write(b)
}

// lateFleet sets a policy, and opens a limiter for it in as many sessions as there are delays. Once a limiter is open, each
// answer of etcd reaches its session so much later. leave closes the sessions.
func lateFleet(t *testing.T, n *network, p quota.Policy, delays ...time.Duration) (limiters []*consumer.Limiter, leave func()) {
	t.Helper()
	operator, err := admin.New(n.connect(t), admin.Options{Prefix: prefix, Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Put(t.Context(), provider, p); err != nil {
		t.Fatal(err)
	}
	var sessions []*coordinator.Session
	for i, delay := range delays {
		way := newLine(n)
		session, err := coordinator.Join(t.Context(), n.connectBy(t, way.dial), coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("hand-%d", i), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, session)
		pass(time.Millisecond)
		limiter, err := consumer.Open(t.Context(), session, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		way.delay.Store(int64(delay))
		limiters = append(limiters, limiter)
	}
	return limiters, func() {
		for _, session := range sessions {
			_ = session.Close()
		}
	}
}
