// Package fair orders calls of several clients, so that each waiting client gets as many
// permits as the others, however many calls it makes. It is start-time fair queueing:
// each client has a tag, the permits that it got, and the client with the lowest tag is
// next. A client that comes begins at the tag that is served then, so it cannot save up.
package fair

import (
	"container/heap"
	"container/list"
)

// queue has the waiting calls. The zero queue is not usable: see newQueue. It is not safe
// for concurrent use.
type queue struct {
	ready clients            // those with waiting calls
	known map[string]*client // ready, or ahead of tag
	tag   int64              // of the client that was served last
	calls uint64             // that have come
}

type client struct {
	name  string
	tag   int64
	since uint64     // the number of its first waiting call: equal tags are served in order
	calls *list.List // of *call
	index int        // in ready; negative if no call waits
}

// call is a waiting call.
type call struct {
	client *client
	place  *list.Element
	cost   int64
	number uint64
	turn   chan struct{} // closed when it is next
}

func newQueue() *queue { return &queue{known: map[string]*client{}} }

// push adds a call that costs so many permits.
func (q *queue) push(name string, cost int64) *call {
	c := q.client(name)
	q.calls++
	w := &call{client: c, cost: cost, number: q.calls, turn: make(chan struct{})}
	w.place = c.calls.PushBack(w)
	if c.index < 0 {
		c.since = w.number
		heap.Push(&q.ready, c)
	}
	return w
}

// pop removes the next call and returns it; nil if none waits.
func (q *queue) pop() *call {
	if len(q.ready) == 0 {
		return nil
	}
	w := q.ready[0].calls.Front().Value.(*call)
	q.remove(w)
	q.serve(w.client, w.cost)
	return w
}

// serve counts a call that is served.
func (q *queue) serve(c *client, cost int64) {
	q.tag = c.tag
	c.tag += cost
	if c.index >= 0 {
		heap.Fix(&q.ready, c.index)
	}
	if len(q.known) < 2*len(q.ready)+64 {
		return
	}
	for name, c := range q.known {
		if c.index < 0 && c.tag <= q.tag {
			delete(q.known, name)
		}
	}
}

// remove takes a call back; false if it was popped or removed before.
func (q *queue) remove(w *call) bool {
	c := w.client
	if w.place == nil {
		return false
	}
	c.calls.Remove(w.place)
	w.place = nil
	if first := c.calls.Front(); first == nil {
		heap.Remove(&q.ready, c.index)
	} else {
		c.since = first.Value.(*call).number
		heap.Fix(&q.ready, c.index)
	}
	return true
}

// client returns the client of a name, which is never behind those that are served.
func (q *queue) client(name string) *client {
	c := q.known[name]
	if c == nil {
		c = &client{name: name, calls: list.New(), index: -1}
		q.known[name] = c
	}
	if c.index < 0 {
		c.tag = max(c.tag, q.tag)
	}
	return c
}

// clients is a heap, the lowest tag first.
type clients []*client

func (h clients) Len() int { return len(h) }

func (h clients) Less(i, j int) bool {
	return h[i].tag < h[j].tag || h[i].tag == h[j].tag && h[i].since < h[j].since
}

func (h clients) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *clients) Push(x any) {
	c := x.(*client)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *clients) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h, c.index = (*h)[:last], -1
	return c
}
