// Package fair orders calls of several clients, so that each waiting client gets as many
// permits as the others, however many calls it makes. It is start-time fair queueing:
// each client has a tag, the permits that it got, and the client with the lowest tag is
// next. A client that comes begins at the tag that is served then, so it cannot save up.
package fair

import (
	"cmp"
	"slices"
)

// queue has the waiting calls. The zero queue is not usable: see newQueue. It is not safe
// for concurrent use.
type queue struct {
	known map[string]*client // with waiting calls, or ahead of tag
	tag   int64              // of the client that was served last
	calls uint64             // that have come
}

type client struct {
	name  string
	tag   int64
	calls []*call // that wait, in order
}

// call is a waiting call.
type call struct {
	client *client
	cost   int64
	number uint64
	turn   chan struct{} // closed when it is next
}

func newQueue() *queue { return &queue{known: map[string]*client{}} }

// push adds a call that costs so many permits.
func (q *queue) push(name string, cost int64) *call {
	q.calls++
	c := q.client(name)
	w := &call{client: c, cost: cost, number: q.calls, turn: make(chan struct{})}
	c.calls = append(c.calls, w)
	return w
}

// pop removes the next call and returns it; nil if none waits. It looks at every client:
// they are as many as connections wait, at most. Equal tags are served in order.
func (q *queue) pop() *call {
	var next *client
	for name, c := range q.known {
		switch {
		case len(c.calls) > 0:
			if next == nil || cmp.Or(cmp.Compare(c.tag, next.tag), cmp.Compare(c.calls[0].number, next.calls[0].number)) < 0 {
				next = c
			}
		case c.tag <= q.tag:
			delete(q.known, name)
		}
	}
	if next == nil {
		return nil
	}
	w := next.calls[0]
	q.remove(w)
	q.serve(next, w.cost)
	return w
}

// serve counts a call that is served.
func (q *queue) serve(c *client, cost int64) {
	q.tag = c.tag
	c.tag += cost
}

// remove takes a call back; false if it was popped or removed before.
func (q *queue) remove(w *call) bool {
	before := len(w.client.calls)
	w.client.calls = slices.DeleteFunc(w.client.calls, func(other *call) bool { return other == w })
	return len(w.client.calls) < before
}

// client returns the client of a name, which is never behind those that are served.
func (q *queue) client(name string) *client {
	c := q.known[name]
	if c == nil {
		c = &client{name: name}
		q.known[name] = c
	}
	if len(c.calls) == 0 {
		c.tag = max(c.tag, q.tag)
	}
	return c
}
