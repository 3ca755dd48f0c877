package webguard

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// dialFrom connects from an address of loopback.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request and returns the status.
func ask(conn net.Conn, token string) (int, error) {
	if _, err := fmt.Fprintf(conn, "GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", token); err != nil {
		return 0, err
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return a.StatusCode, a.Body.Close()
}

// TestNobodyIsLockedOut: connections that say nothing, that say half a request, or
// that wait for another one, never keep anybody out; a stream of a known caller is
// not closed for them, nor are connections of other addresses.
func TestNobodyIsLockedOut(t *testing.T) {
	t.Parallel()
	tokens, err := ParseTokens("ann "+annsToken, "")
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{Hosts: []string{"127.0.0.1"}, Tokens: tokens, Public: func(string) bool { return false }, Log: quietLog()}
	streaming, end := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/stream" {
			w.WriteHeader(http.StatusOK)
			close(streaming)
			<-end
		}
	})), quietLog())
	server.Start()
	defer server.Close()
	defer close(end)
	at := server.Listener.Addr().String()
	stream := dialFrom(t, "127.0.0.1", at)
	fmt.Fprintf(stream, "GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", annsToken)
	<-streaming
	// Of another address, and open before all of the flood.
	quiet := dialFrom(t, "127.0.0.3", at)
	if status, err := ask(quiet, annsToken); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	for i := range 3 * MaxConnections {
		conn := dialFrom(t, "127.0.0.2", at)
		switch i % 3 {
		case 0:
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: ")
		case 1:
			_, _ = ask(conn, "not-a-token-that-anybody-has")
		}
	}
	if status, err := ask(dialFrom(t, "127.0.0.1", at), annsToken); status != 200 || err != nil {
		t.Errorf("somebody new: %d, %v", status, err)
	}
	if status, err := ask(quiet, annsToken); status != 200 || err != nil {
		t.Errorf("a connection of another address: %d, %v", status, err)
	}
	end <- struct{}{}
	a, err := http.ReadResponse(bufio.NewReader(stream), nil)
	if err != nil {
		t.Fatalf("the stream was closed: %v", err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Errorf("the stream was closed: %s", a.Status)
	}
}
