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

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// accept returns a listener for connections to l. Those beyond the bounds get an answer
// that says so.
func (s *Server) accept(l net.Listener, peer func(net.Conn) (string, error)) net.Listener {
	return &listen.Bounded{Listener: l, Occupancy: s.clients.connections, Peer: peer, Refuse: s.clients.turnAway}
}

// turnAway answers a connection, whatever it would have asked. Nobody waits for it to read
// that.
func (t *clients) turnAway(c net.Conn, why error) {
	t.refuse(connectionBound, why)
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

// client names the client that sent a request.
func (s *Server) client(r *http.Request) (string, error) {
	c, ok := r.Context().Value(connectionKey{}).(*listen.Conn)
	if !ok {
		return "", errors.New("the connection is not known")
	}
	if r.TLS != nil {
		if err := c.Identify(listen.Certificate(r.TLS.PeerCertificates[0].Subject.String())); err != nil {
			s.clients.refuse(connectionBound, err)
			return "", err
		}
	}
	return c.Client(), nil
}
