package httplimit

import (
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

// costs has the response's Body settle the permit, or settles it if the header says the cost.
func (t *Transport) costs(response *http.Response, p consumer.Permit) {
	b := &body{ReadCloser: response.Body, permit: p}
	response.Body = b
	if t.Settle != nil {
		if cost, ok := t.Settle(response); ok {
			b.over, b.err = true, p.Settle(cost)
		}
	}
}

// body is the Body of a response, whose Close books what the request has cost.
type body struct {
	io.ReadCloser
	permit consumer.Permit

	mu   sync.Mutex
	cost int64 // if told
	told bool
	over bool  // nothing more is booked
	err  error // of booking: Close returns it
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	if b.told && !b.over {
		b.err = b.permit.Settle(b.cost)
	}
	b.over = true
	err := b.err
	b.err = nil
	b.mu.Unlock()
	return errors.Join(err, b.ReadCloser.Close())
}
