package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// accepting accepts connections within the bounds of the clients.
type accepting struct {
	listen.Bounded
	answer func(*connection, []byte) verdict
}

// connection is an open connection of a client.
type connection struct {
	*listen.Conn

	// For Read, see quick.go:
	answer  func(*connection, []byte) verdict
	between bool      // two requests of net/http
	renewed time.Time // deadlines; zero: by net/http
}

// accept returns a listener for connections to l. Those beyond the bounds get an answer
// that says so.
func (s *Server) accept(l net.Listener, peer func(net.Conn) (fair.Client, error), answer func(*connection, []byte) verdict) net.Listener {
	return &accepting{listen.Bounded{Listener: l, Occupancy: s.clients.connections, Peer: peer, Refuse: s.clients.turnAway}, answer}
}

// Accept returns the next connection that is within the bounds.
func (l *accepting) Accept() (net.Conn, error) {
	c, err := l.Bounded.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c.(*listen.Conn), answer: l.answer}, nil
}

// turnAway answers a connection, whatever it would have asked. Nobody waits for it to read
// that.
func (t *clients) turnAway(c net.Conn, why error) {
	t.refused.WithLabelValues(connectionBound).Inc()
	body := fmt.Sprintf("{\"type\":\"about:blank\",\"title\":\"Too Many Requests\",\"status\":429,\"detail\":%s,\"retry_after\":1}\n", strconv.Quote(why.Error()))
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(body), body)
}

type connectionKey struct{}

// withConnection lets requests know their connection.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// client returns the client that sent a request.
func (s *Server) client(r *http.Request) (fair.Client, error) {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return fair.Client{}, errors.New("the connection is not known")
	}
	if r.TLS != nil {
		if err := c.Identify(listen.Certificate(r.TLS.PeerCertificates[0].Subject.String())); err != nil {
			s.clients.refused.WithLabelValues(connectionBound).Inc()
			return fair.Client{}, err
		}
	}
	return c.Client(), nil
}
