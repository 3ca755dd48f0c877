// Package sse sends what happens to browsers, as server-sent events, so that
// nobody misses or doubles a point when a connection breaks.
//
// A Topic has two kinds of events. Points are numbered and kept for a while: who
// comes back says which one was the last (Last-Event-ID, which browsers send by
// themselves) and gets the later ones, or, where those are no longer known, the
// event "reset" and all that are kept. The state is only ever the newest:
// without a number, replaced by the next.
package sse

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Topic is what those who look at one thing are sent. Safe for concurrent use.
type Topic struct {
	epoch string // of this Topic: numbers of another mean nothing here
	keep  int

	mu      sync.Mutex
	points  [][]byte // the newest keep, each framed
	next    int64    // number of the next point; the first is 1
	state   []byte   // framed; nil before the first
	states  int64    // how many there were
	changed chan struct{}
}

// NewTopic returns a topic that keeps so many points.
func NewTopic(keep int) *Topic {
	return &Topic{epoch: rand.Text()[:8], keep: keep, next: 1, changed: make(chan struct{})}
}

// Point sends what everybody is to get once, in order. data is one line.
func (t *Topic) Point(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points = append(t.points, fmt.Appendf(nil, "event: point\nid: %s.%d\ndata: %s\n\n", t.epoch, t.next, data))
	t.next++
	if len(t.points) > t.keep {
		t.points = append([][]byte(nil), t.points[1:]...)
	}
	t.wakeLocked()
}

// State replaces what the newest state is. data is one line.
func (t *Topic) State(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = fmt.Appendf(nil, "event: state\ndata: %s\n\n", data)
	t.states++
	t.wakeLocked()
}

func (t *Topic) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// cursor is how far a reader has come.
type cursor struct {
	next  int64 // the point wanted next; 0: nothing is known of the reader
	state int64
}

// resume returns the cursor of a reader who says which event was the last.
func (t *Topic) resume(lastEventID string) cursor {
	epoch, number, _ := strings.Cut(lastEventID, ".")
	n, err := strconv.ParseInt(number, 10, 64)
	if epoch != t.epoch || err != nil || n < 0 {
		return cursor{}
	}
	return cursor{next: n + 1}
}

// read returns the frames that the reader lacks, the cursor behind them, and
// what is closed when there are more.
func (t *Topic) read(c cursor) (frames [][]byte, after cursor, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	oldest := t.next - int64(len(t.points))
	if c.next < oldest || c.next > t.next {
		// The number is told, so that who has seen no point yet can come back.
		frames = append(frames, fmt.Appendf(nil, "event: reset\nid: %s.%d\ndata: {}\n\n", t.epoch, oldest-1))
		c.next = oldest
	}
	frames = append(frames, t.points[c.next-oldest:]...)
	if c.state != t.states && t.state != nil {
		frames = append(frames, t.state)
	}
	return frames, cursor{t.next, t.states}, t.changed
}
