// Package fair orders calls of several clients. Each user whose calls wait gets as many
// permits as the others, and so does each process among those of its user. The number of
// their calls does not matter. It is start-time fair queueing in two levels: each user and
// each process has a tag, the permits that it got, and the lowest tag is next. A newcomer
// begins at the tag that is served then, so it cannot save up.
package fair

import (
	"cmp"
	"slices"
)

// Client is who makes a call.
type Client struct {
	User    string
	Process string // of the user
}

// queue has the waiting calls. The zero queue is not usable: see newQueue. It is not safe
// for concurrent use.
type queue struct {
	users flows
	calls uint64 // that have come
}

// flows are all users, or the processes of one.
type flows struct {
	known map[string]*flow // with waiting calls, or ahead of tag
	tag   int64            // of the flow that was served last
}

// flow is a user or a process.
type flow struct {
	tag       int64
	waiting   int     // calls, of all processes of a user
	processes flows   // of a user
	calls     []*call // of a process, in order
}

// call is a waiting call.
type call struct {
	user, process *flow
	client        Client
	cost          int64
	number        uint64
	turn          chan struct{} // closed when it is next
}

func newQueue() *queue { return &queue{users: flows{known: map[string]*flow{}}} }

// push adds a call that costs so many permits.
func (q *queue) push(c Client, cost int64) *call {
	q.calls++
	w := &call{client: c, cost: cost, number: q.calls, turn: make(chan struct{})}
	w.user, w.process = q.client(c)
	w.process.calls = append(w.process.calls, w)
	w.process.waiting++
	w.user.waiting++
	return w
}

// pop removes the next call and returns it; nil if none waits. It looks at every client:
// they are as many as connections wait, at most. Equal tags are served in order.
func (q *queue) pop() *call {
	w := q.users.next((*flow).firstOfUser)
	if w != nil {
		q.remove(w)
		q.serve(w.user, w.process, w.cost)
	}
	return w
}

// next returns the first call of the flow with the lowest tag, and forgets flows that are
// not ahead.
func (f *flows) next(first func(*flow) *call) (next *call) {
	var lowest int64
	for name, one := range f.known {
		if one.waiting == 0 {
			if one.tag <= f.tag {
				delete(f.known, name)
			}
			continue
		}
		if w := first(one); next == nil || cmp.Or(cmp.Compare(one.tag, lowest), cmp.Compare(w.number, next.number)) < 0 {
			next, lowest = w, one.tag
		}
	}
	return next
}

func (f *flow) firstOfUser() *call { return f.processes.next((*flow).firstOfProcess) }

func (f *flow) firstOfProcess() *call { return f.calls[0] }

// serve counts a call that is served.
func (q *queue) serve(user, process *flow, cost int64) {
	q.users.tag = user.tag
	user.tag += cost
	user.processes.tag = process.tag
	process.tag += cost
}

// remove takes a call back; false if it was popped or removed before.
func (q *queue) remove(w *call) bool {
	at := slices.Index(w.process.calls, w)
	if at < 0 {
		return false
	}
	w.process.calls = slices.Delete(w.process.calls, at, at+1)
	w.process.waiting--
	w.user.waiting--
	return true
}

// client returns the flows of a client, which are never behind those that are served.
func (q *queue) client(c Client) (user, process *flow) {
	user = q.users.flow(c.User)
	return user, user.processes.flow(c.Process)
}

func (f *flows) flow(name string) *flow {
	one := f.known[name]
	if one == nil {
		one = &flow{processes: flows{known: map[string]*flow{}}}
		f.known[name] = one
	}
	if one.waiting == 0 {
		one.tag = max(one.tag, f.tag)
	}
	return one
}
