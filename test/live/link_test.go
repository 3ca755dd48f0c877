package live_test

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Link is a TCP address on loopback that leads to another one, and that can be
// held, so that nothing passes, or cut, so that connections break. Its methods
// are safe for concurrent use.
type Link struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		passing chan struct{} // closed while bytes pass
		held    bool
		cut     bool
		closed  bool
		conns   map[net.Conn]struct{}
	}
}

// NewLink returns an open link to a TCP address; close it after use.
func NewLink(to string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", to, err)
	}
	l := &Link{to: to, listener: listener}
	l.mu.passing, l.mu.conns = make(chan struct{}), map[net.Conn]struct{}{}
	close(l.mu.passing)
	l.wg.Go(l.accept)
	return l, nil
}

// Address is where clients connect to.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Hold keeps back all bytes, both ways, until Mend. Connections stay up.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.held && !l.mu.closed {
		l.mu.held, l.mu.passing = true, make(chan struct{})
	}
}

// Cut breaks all connections, and new ones at once, until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = true
	l.breakLocked()
}

// Mend lets bytes pass again: those that were held first.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = false
	l.releaseLocked()
}

// Close breaks all connections and gives the address back.
func (l *Link) Close() error {
	l.mu.Lock()
	l.mu.closed = true
	l.breakLocked()
	l.releaseLocked()
	l.mu.Unlock()
	err := l.listener.Close()
	l.wg.Wait()
	return err
}

func (l *Link) breakLocked() {
	for c := range l.mu.conns {
		_ = c.Close()
	}
	clear(l.mu.conns)
}

func (l *Link) releaseLocked() {
	if l.mu.held {
		l.mu.held = false
		close(l.mu.passing)
	}
}

func (l *Link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.join(near) })
	}
}

// join carries bytes between a client and the server until one of them is gone.
func (l *Link) join(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer far.Close()
	if !l.keep(near, far) {
		return
	}
	defer l.forget(near, far)
	var wg sync.WaitGroup
	wg.Go(func() { l.carry(far, near) })
	l.carry(near, far)
	wg.Wait()
}

// keep notes connections that a Cut has to break; false if they are broken
// already.
func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cut || l.mu.closed {
		return false
	}
	for _, c := range conns {
		l.mu.conns[c] = struct{}{}
	}
	return true
}

func (l *Link) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.mu.conns, c)
	}
}

// carry copies one way. When that ends the other way ends too.
func (l *Link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		passing := l.mu.passing
		l.mu.Unlock()
		<-passing
		if _, e := to.Write(buffer[:n]); e != nil || err != nil {
			return
		}
	}
}

var _ io.Closer = (*Link)(nil)
