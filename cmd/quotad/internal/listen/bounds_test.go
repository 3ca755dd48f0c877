package listen

import (
	"net"
	"slices"
	"testing"
)

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// dial returns the ends of a new connection: the client's, and the server's, which is nil if
// it was refused.
func dial(l *Bounded) (ours net.Conn, theirs *Conn) {
	ours, raw := net.Pipe()
	p := l.Listener.(pipes)
	p <- raw
	close(p)
	c, _ := l.Accept()
	l.Listener = make(pipes, 1)
	theirs, _ = c.(*Conn)
	return ours, theirs
}

// A client has no more than its bound, and all no more than all.
func TestBounds(t *testing.T) {
	t.Parallel()
	var peer string
	var refused []string
	l := &Bounded{
		Listener: make(pipes, 1), Occupancy: NewOccupancy("connections", Bounds{All: 4, AllFlag: "max", Client: 2, ClientFlag: "each"}),
		Peer:   func(net.Conn) (string, error) { return peer, nil },
		Refuse: func(_ net.Conn, err error) { refused = append(refused, err.Error()) },
	}
	var open []*Conn
	for _, peer = range []string{"a", "a", "a", "b", "c", "d"} {
		if _, c := dial(l); c != nil {
			open = append(open, c)
		}
	}
	want := []string{
		"a has 2 connections, which is the most (--each): wait for answers before sending more",
		"4 connections are open, which is the most (--max)",
	}
	if !slices.Equal(refused, want) {
		t.Errorf("%q", refused)
	}
	for _, c := range open {
		_, _ = c.Close(), c.Close()
	}
	if n, all := l.Occupancy.Open(), l.Occupancy.Clients(); n != 0 || len(all) != 0 {
		t.Errorf("%d are counted, of %v", n, all)
	}
}

// Strangers that connect and stay silent make room for those that come later, also at another
// listener, and do not push out a client that has shown a certificate.
func TestStrangersShutNobodyOut(t *testing.T) {
	t.Parallel()
	l := &Bounded{Listener: make(pipes, 1), Occupancy: NewOccupancy("connections", Bounds{All: 4, Client: 4}), Peer: AnyTCP}
	_, known := dial(l)
	if err := known.Identify("certificate CN=known"); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range 20 {
		ours, theirs := dial(l)
		if theirs == nil {
			t.Fatal("a connection was refused for strangers")
		}
		silent = append(silent, ours)
	}
	closed := 0
	for _, c := range silent[:17] {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			closed++
		}
	}
	if known.closed || closed != 17 || l.Occupancy.Open() != 4 {
		t.Errorf("the client is closed: %v; %d of the first strangers are, and %d connections are open", known.closed, closed, l.Occupancy.Open())
	}
	socket := &Bounded{Listener: make(pipes, 1), Occupancy: l.Occupancy, Peer: func(net.Conn) (string, error) { return "process 1", nil }}
	_, process := dial(socket)
	if process == nil {
		t.Fatal("strangers at one listener shut out a process at another")
	}
	var more []*Conn
	for range 2 {
		_, c := dial(l)
		more = append(more, c)
		if err := c.Identify("certificate CN=known"); err != nil {
			t.Error(err)
		}
	}
	if err := more[0].Identify("certificate CN=another"); err != nil || more[0].Client() != "certificate CN=known" {
		t.Error("a connection changed its client")
	}
	if _, c := dial(l); c != nil {
		t.Error("all connections are of known clients, and one more came")
	}
}
