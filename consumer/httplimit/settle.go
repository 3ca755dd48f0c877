package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/quotient-limiter/quotient/consumer"
)

// Settle says what the request of a Transport's response has cost, where the body tells it: such as the
// tokens of an answer, or those so far of one that is still being read. The last cost given counts. It is
// booked when the response's Body is closed, whose Close returns an error if that cannot be done: see
// consumer.Permit.Settle. Without a call the permits stand as they were taken.
//
// It returns consumer.ErrInvalid if the response is of no Transport, or took no permits; if its Body was
// replaced or closed before; or if Transport.Settle has told its cost. It is safe for concurrent use.
func Settle(response *http.Response, cost int64) error {
	b, ok := response.Body.(*body)
	if !ok {
		return fmt.Errorf("httplimit: %w: settle: the response's Body is not a Transport's, or the request took no permits", consumer.ErrInvalid)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return fmt.Errorf("httplimit: %w: settle: the cost was told before, or the Body is closed: settle once, before Close", consumer.ErrInvalid)
	}
	b.cost, b.told = cost, true
	return nil
}

// wrap has the response's Body settle the permit, or settles it if the header says the cost. The request has
// ended, which done says, when the Body is closed. Under a limit in flight no cost is booked.
func (t *Transport) wrap(response *http.Response, p consumer.Permit, done func()) {
	if c, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		if p.InFlight() {
			response.Body = &connection{c, done}
		}
		return
	}
	b := &body{ReadCloser: response.Body, permit: p, done: done}
	response.Body = b
	if t.Settle != nil && !p.InFlight() {
		if cost, ok := t.Settle(response); ok {
			b.over, b.err = true, p.Settle(cost)
		}
	}
}

// within returns a request with the context of its permit, itself if that is its own.
func within(ctx context.Context, r *http.Request) *http.Request {
	if ctx == r.Context() {
		return r
	}
	return r.WithContext(ctx)
}

// connection is the Body of a response that has switched protocols.
type connection struct {
	io.ReadWriteCloser
	done func()
}

// Close implements io.Closer.
func (c *connection) Close() error {
	defer c.done()
	return c.ReadWriteCloser.Close()
}

// body is the Body of a response, whose Close books what the request has cost, and ends it.
type body struct {
	io.ReadCloser
	permit consumer.Permit
	done   func()

	mu   sync.Mutex
	cost int64 // if told
	told bool
	over bool  // nothing more is booked
	err  error // of booking: Close returns it
}

// Close implements io.Closer.
func (b *body) Close() error {
	closing := b.ReadCloser.Close()
	defer b.done()
	b.mu.Lock()
	if b.told && !b.over {
		b.err = b.permit.Settle(b.cost)
	}
	b.over = true
	err := b.err
	b.err = nil
	b.mu.Unlock()
	return errors.Join(err, closing)
}
