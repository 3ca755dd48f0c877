package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
)

const (
	// lifetime is how long one stream lasts before the page has to come back.
	lifetime = 10 * time.Minute
	// writeTime is how long a reader may keep a write waiting.
	writeTime = 10 * time.Second
	// streamsEach is how many streams one caller has; another one ends the oldest.
	streamsEach = 16
)

type message struct {
	Reset  bool         `json:"reset,omitempty"`  // forget the points that came before: none of them is kept
	Points []live.Point `json:"points,omitempty"` // that the page lacks
	State  *state       `json:"state"`            // only the newest counts
}

// topic is what the pages that show the same are sent.
type topic struct {
	readers int // guarded by the follower

	mu      sync.Mutex
	state   *state // nil at first
	points  []live.Point
	changed chan struct{}
}

func newTopic() *topic { return &topic{changed: make(chan struct{})} }

// send replaces the state and the points that are kept.
func (t *topic) send(points []live.Point, s *state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points, t.state = points, s
	close(t.changed)
	t.changed = make(chan struct{})
}

// read returns the points that a reader lacks whose newest one is of an instant, 0 for
// none, and a channel that is closed when there are more.
func (t *topic) read(newest int64) (m message, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.points, newest+1, func(p live.Point, at int64) int { return cmp.Compare(p.At, at) })
	return message{i == 0, t.points[i:], t.state}, t.changed
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
	for newest := int64(0); ; {
		m, more := t.read(newest)
		if n := len(m.Points); n > 0 {
			newest = m.Points[n-1].At
		}
		if m.State != nil && (control.SetWriteDeadline(time.Now().Add(writeTime)) != nil || json.NewEncoder(w).Encode(m) != nil) || control.Flush() != nil {
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
