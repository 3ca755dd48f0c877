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
)

// bounded accepts connections within the limits of the clients. peer tells the user at the
// other end, and the process if it is known.
type bounded struct {
	net.Listener
	clients *clients
	peer    func(net.Conn) (user, process string, err error)
	answer  func(*connection, []byte) verdict
}

// connection is an open connection of a client.
type connection struct {
	net.Conn
	clients *clients

	// For Read, see quick.go:
	answer  func(*connection, []byte) verdict
	between bool      // two requests of net/http
	renewed time.Time // deadlines; zero: by net/http

	user   string // guarded by clients.mu; "" after the end
	client string // set once, under clients.mu; "" until it is known
}

// Accept returns the next connection that is within the limits. Others get an answer that
// says so, and are closed.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: raw, clients: l.clients, answer: l.answer}
		user, process, err := l.peer(raw)
		if err == nil {
			err = l.clients.connect(c, user)
		}
		if err == nil && process != "" {
			err = l.clients.attach(c, process)
		}
		if err == nil {
			return c, nil
		}
		c.turnAway(err)
	}
}

// turnAway answers a connection, whatever it would have asked, and closes it. Nobody waits
// for it to read that.
func (c *connection) turnAway(why error) {
	body := fmt.Sprintf("{\"type\":\"about:blank\",\"title\":\"Too Many Requests\",\"status\":429,\"detail\":%s,\"retry_after\":1}\n", strconv.Quote(why.Error()))
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = c.Close()
}

// Close closes the connection.
func (c *connection) Close() error {
	c.clients.disconnect(c)
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection lets requests know their connection.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// client returns the name of the client that sent a request.
func (s *Server) client(r *http.Request) (string, error) {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return "", errors.New("the connection is not known")
	}
	name := ""
	if r.TLS != nil {
		name = "certificate " + r.TLS.PeerCertificates[0].Subject.String()
	}
	err := s.clients.attach(c, name)
	return c.client, err
}
