package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// Client returns a client of the server at a Unix socket, whatever the host of a URL is. Each request has a connection of
// its own, and at most so much time.
func Client(socket string, most time.Duration) *http.Client {
	return &http.Client{Timeout: most, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// Server serves until it is shut down.
type Server interface {
	// Serve returns nil after Shutdown, and otherwise why it ended.
	Serve() error
	// GiveWay has clients connect anew, so that they reach another process at the same socket. It returns false if there
	// is none: then those who come are served here as before, until Shutdown.
	GiveWay() (another bool, err error)
	// Shutdown ends it: waiting calls are refused, answers under way are sent, as long as
	// ctx allows.
	Shutdown(ctx context.Context) error
}

// HTTP is a server and its listeners.
type HTTP struct {
	*http.Server
	Listeners []net.Listener
}

// Serve serves until Shutdown, and returns nil then. If a listener fails, the others end too.
func (h *HTTP) Serve() error {
	var group errgroup.Group
	for _, l := range h.Listeners {
		group.Go(func() error {
			err := h.Server.Serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return errors.Join(err, h.Close())
		})
	}
	return group.Wait()
}

// GiveWay closes each connection after its answer, and at once where none is under way.
func (h *HTTP) GiveWay() (another bool, err error) {
	for _, l := range h.Listeners {
		one, failed := GiveWay(l)
		another, err = another || one, errors.Join(err, failed)
	}
	h.SetKeepAlivesEnabled(false)
	return another, err
}

// GiveWay has the path of a listener's socket lead to another process that serves it too. It returns false if there is
// none.
func GiveWay(l net.Listener) (another bool, err error) {
	if b, ok := l.(*Bounded); ok {
		l = b.Listener
	}
	if s, ok := l.(interface{ giveWay() (bool, error) }); ok {
		return s.giveWay()
	}
	return false, nil
}

// Shutdown returns when all answers are sent, or ctx ends: clients that take no answer are
// cut off, which is no error.
func (h *HTTP) Shutdown(ctx context.Context) error {
	err := h.Server.Shutdown(ctx)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = h.Close()
	}
	for _, l := range h.Listeners {
		_ = l.Close() // if Serve was never called
	}
	return err
}
