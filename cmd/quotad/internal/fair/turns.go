package fair

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLate: the turn did not come in time.
var ErrLate = errors.New("other users and processes are served first")

// Turns lets one call at a time take permits; the others wait for their turn, by the order
// of this package. It is safe for concurrent use. Make it with NewTurns.
type Turns struct {
	mu    sync.Mutex
	taken bool
	queue *queue
	// The call that took a free turn, until it is counted: only if another has to wait.
	holder Client
	cost   int64
}

// NewTurns returns turns that nobody has.
func NewTurns() *Turns { return &Turns{queue: newQueue()} }

// Busy reports whether some call has the turn.
func (t *Turns) Busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// Enter waits until it is the turn of a client's call that costs so many permits. The
// caller ends the turn with Leave, unless there is an error: ErrLate after the wait, or
// that of ctx.
func (t *Turns) Enter(ctx context.Context, client Client, cost int64, wait time.Duration) error {
	t.mu.Lock()
	if !t.taken {
		t.taken, t.holder, t.cost = true, client, cost
		t.mu.Unlock()
		return nil
	}
	if t.cost > 0 {
		user, process := t.queue.client(t.holder)
		t.queue.serve(user, process, t.cost)
		t.cost = 0
	}
	w := t.queue.push(client, cost)
	t.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	err := ErrLate
	select {
	case <-w.turn:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	waits := t.queue.remove(w)
	t.mu.Unlock()
	if !waits { // its turn came at the same moment
		t.Leave()
	}
	return err
}

// Yield ends the turn of a client's call that took none of its permits.
func (t *Turns) Yield(client Client, cost int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cost == 0 {
		user, process := t.queue.client(client)
		user.tag -= cost
		process.tag -= cost
	}
	t.cost = 0
	t.leave()
}

// Leave ends the turn.
func (t *Turns) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

func (t *Turns) leave() {
	if next := t.queue.pop(); next != nil {
		close(next.turn)
		return
	}
	t.taken = false
	if len(t.queue.users.known) > 0 {
		t.queue = newQueue()
	}
}
