package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
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
	user    string
	once    sync.Once

	// For Read, see quick.go:
	answer  func(*connection, []byte) verdict
	between bool      // two requests of net/http
	renewed time.Time // deadlines; zero: by net/http

	mu     sync.Mutex
	client *client // nil until it is known
}

// Accept returns the next connection that is within the limits. Others get an answer that
// says so, and are closed.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		user, process, err := l.peer(raw)
		if err == nil {
			err = l.clients.connect(user)
		}
		if err != nil {
			turnAway(raw, err)
			continue
		}
		c := &connection{Conn: raw, clients: l.clients, user: user, answer: l.answer}
		if process != "" {
			if _, err := c.attach(process); err != nil {
				turnAway(raw, err)
				c.release()
				continue
			}
		}
		return c, nil
	}
}

// turnAway answers a connection, whatever it would have asked, and closes it. Nobody waits
// for it to read that.
func turnAway(c net.Conn, why error) {
	body := fmt.Sprintf("{\"type\":\"about:blank\",\"title\":\"Too Many Requests\",\"status\":429,\"detail\":%s,\"retry_after\":1}\n", strconv.Quote(why.Error()))
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = c.Close()
}

// attach notes whose connection it is.
func (c *connection) attach(name string) (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	client, err := c.clients.attach(name)
	c.client = client
	return client, err
}

// Close closes the connection.
func (c *connection) Close() error {
	c.release()
	return c.Conn.Close()
}

func (c *connection) release() {
	c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.clients.disconnect(c.user, c.client)
	})
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
func (s *handler) client(r *http.Request) (*client, error) {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return nil, errors.New("the connection is not known")
	}
	if r.TLS == nil {
		return c.attach("")
	}
	return c.attach("certificate " + r.TLS.PeerCertificates[0].Subject.String())
}

// TCP are the files of a listener on loopback.
type TCP listen.Files

// Check returns what is wrong with the address and the files' names.
func (f TCP) Check(address string) error {
	if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
		return fmt.Errorf("--listen %s: must be an address of loopback, such as 127.0.0.1:8787; other hosts run their own quotad", address)
	}
	if f.Cert == "" || f.Key == "" || f.ClientCA == "" {
		return fmt.Errorf("--listen %s: needs --tls-cert, --tls-key and --tls-client-ca; the Unix socket needs none", address)
	}
	return nil
}

// ListenTCP adds a listener on a loopback address. Clients show a certificate that an
// authority in the file ClientCA has signed; those with the same subject are one client.
func (s *Server) ListenTCP(address string, files TCP) error {
	config, err := (*listen.Files)(&files).TLS("http/1.1") // a connection has one call at a time
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	anybody := func(net.Conn) (string, string, error) { return "TCP", "", nil }
	s.http.Listeners = append(s.http.Listeners, tls.NewListener(&bounded{l, s.clients, anybody, nil}, config))
	return nil
}

// ListenUnix adds a listener on a socket that its owner and the group may use; "" is the
// process's own group. A socket that a dead process has left is replaced.
func (s *Server) ListenUnix(path, group string) error {
	l, err := listen.Unix(path, group)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	s.http.Listeners = append(s.http.Listeners, &bounded{l, s.clients, peer, s.quick})
	return nil
}
