package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
)

const (
	// lifetime is how long one stream lasts before the page has to come back.
	lifetime = 10 * time.Minute
	// writeTime is how long a reader may keep a write waiting.
	writeTime = 10 * time.Second
	// streamsEach is how many streams one caller has; another one ends the oldest.
	streamsEach = 16
	// history is how many points are kept, and sent to a page that opens.
	history = live.PointsAtMost
)

// message is one line of a stream.
type message struct {
	Reset  bool          `json:"reset,omitempty"` // forget the points that came before
	Points []rates.Point `json:"points,omitempty"`
	State  *state        `json:"state,omitempty"` // only the newest counts
}

// topic is what the pages that show the same are sent. A page that comes gets all
// points that are kept, and then those that it lacks.
type topic struct {
	readers int       // guarded by the follower
	left    time.Time // when the last one went; guarded by the follower

	mu      sync.Mutex
	points  []rates.Point // the newest
	count   int           // of points there ever were
	state   *state
	states  int
	changed chan struct{}
}

func newTopic() *topic { return &topic{changed: make(chan struct{})} }

// send adds points, and replaces the state.
func (t *topic) send(points []rates.Point, s *state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points = append(t.points, points...)
	t.points = t.points[max(0, len(t.points)-history):]
	t.count += len(points)
	t.state = s
	t.states++
	close(t.changed)
	t.changed = make(chan struct{})
}

// cursor is how far a reader has come.
type cursor struct{ points, states int }

// read returns what the reader lacks, the cursor behind it, and what is closed when
// there is more.
func (t *topic) read(c cursor) (m message, after cursor, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.count - len(t.points)
	m.Reset = c.states == 0 || c.points < first
	m.Points = append(m.Points, t.points[max(0, c.points-first):]...)
	if c.states != t.states {
		m.State = t.state
	}
	return m, cursor{t.count, t.states}, t.changed
}

// serve writes a line for whatever happens, until the reader goes, does not read,
// or ends closes.
func (t *topic) serve(ctx context.Context, w http.ResponseWriter, ends <-chan struct{}) {
	control := http.NewResponseController(w)
	// The bound on reading the request is past; the stream has none.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that collect answers
	ctx, cancel := context.WithTimeout(ctx, lifetime)
	defer cancel()
	var at cursor
	for {
		m, after, more := t.read(at)
		if m.State != nil || at.states > 0 {
			at = after
			if control.SetWriteDeadline(time.Now().Add(writeTime)) != nil || json.NewEncoder(w).Encode(m) != nil {
				return
			}
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		case <-ends:
			return
		}
	}
}

// streams bounds how many each caller has.
type streams struct {
	mu sync.Mutex
	of map[string][]*context.CancelFunc // oldest first
}

// open returns a context for a stream of the caller; done ends it.
func (s *streams) open(ctx context.Context, who string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string][]*context.CancelFunc{}
	}
	all := append(s.of[who], &cancel)
	if len(all) > streamsEach {
		(*all[0])()
		all = all[1:]
	}
	s.of[who] = all
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of[who] = slices.DeleteFunc(s.of[who], func(c *context.CancelFunc) bool { return c == &cancel })
		if len(s.of[who]) == 0 {
			delete(s.of, who)
		}
	}
}
