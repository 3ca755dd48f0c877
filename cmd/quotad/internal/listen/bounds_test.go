package listen

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
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

// A process has no more than its bound, a user no more than half, and all no more than all.
func TestBounds(t *testing.T) {
	t.Parallel()
	var peer fair.Client
	var refused []string
	l := &Bounded{
		Listener: make(pipes, 1), Occupancy: NewOccupancy("connections", Bounds{All: 6, AllFlag: "max", Process: 2, ProcessFlag: "each"}),
		Peer:   func(net.Conn) (fair.Client, error) { return peer, nil },
		Refuse: func(_ net.Conn, err error) { refused = append(refused, err.Error()) },
	}
	var open []*Conn
	for _, name := range []string{"a 1", "a 1", "a 1", "a 2", "a 3", "b 1", "b 2", "c 1", "b 3"} {
		user, _, _ := strings.Cut(name, " ")
		peer = fair.Client{User: user, Process: name}
		if _, c := dial(l); c != nil {
			open = append(open, c)
		}
	}
	want := []string{
		"a 1 has 2 connections, which is the most (--each): wait for answers before sending more",
		"a has 3 connections, half of what all users may have (--max)",
		"6 connections are open, which is the most (--max)",
	}
	if fmt.Sprint(refused) != fmt.Sprint(want) {
		t.Errorf("%q", refused)
	}
	for _, c := range open {
		_, _ = c.Close(), c.Close()
	}
	if n, all := l.Occupancy.Open(), l.Occupancy.Processes(); n != 0 || len(all) != 0 {
		t.Errorf("%d are counted, of %v", n, all)
	}
}

// Strangers that connect and stay silent make room for those that come later, and do not
// push out a client that has shown a certificate.
func TestStrangersShutNobodyOut(t *testing.T) {
	t.Parallel()
	l := &Bounded{Listener: make(pipes, 1), Occupancy: NewOccupancy("connections", Bounds{All: 8, Process: 4}), Peer: AnyTCP}
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
	var more []*Conn
	for range 3 {
		_, c := dial(l)
		more = append(more, c)
		if err := c.Identify("certificate CN=known"); err != nil {
			t.Error(err)
		}
	}
	if err := more[0].Identify("certificate CN=another"); err != nil || more[0].Client().User != "certificate CN=known" {
		t.Error("a connection changed its client")
	}
	if _, c := dial(l); c != nil {
		t.Error("half of all connections are of certificates, and one more came")
	}
}
