package webguard

import (
	"net"
	"net/http"
	"testing"
)

// TestConnectionsAreBounded: those of one address too. One with a known caller stays,
// though it is the oldest.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	c := &connections{all: map[net.Conn]*connection{}}
	open := func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		c.opened(t.Context(), near)
		c.changed(near, http.StateNew)
		return near
	}
	first := open()
	c.all[first].busy.Add(1)
	for range 3 * MaxConnections {
		open()
	}
	if n := len(c.all); n != MaxConnections || c.all[first] == nil {
		t.Errorf("%d connections are open; that of the known caller: %t", n, c.all[first] != nil)
	}
}
