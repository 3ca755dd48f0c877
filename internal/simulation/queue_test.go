package simulation

// item is something that is due at a true time.
type item struct {
	at    int64
	first int8  // among equal times: -1 before the others, 1 after them
	host  *host // who does it: not while stalled, nor when dead; nil: the world
	do    func()
}

// queue is what is due, the next first. Among equal times the order is by
// item.first, then that of pushing. The heap holds no pointers, which the
// garbage collector would want to know of at every move.
type queue struct {
	heap  []due
	items []item
	free  []int32
	count int64
}

// due is an item's place in the order.
type due struct {
	at, order int64
	item      int32
}

func (a *due) before(b *due) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// newQueue returns an empty queue with room for what is due at one time.
func newQueue() queue {
	const room = 128
	return queue{heap: make([]due, 0, room), items: make([]item, 0, room), free: make([]int32, 0, room)}
}

func (q *queue) len() int { return len(q.heap) }

func (q *queue) push(x item) {
	q.count++
	d := due{at: x.at, order: int64(x.first)<<48 + q.count}
	if n := len(q.free); n > 0 {
		d.item, q.free = q.free[n-1], q.free[:n-1]
		q.items[d.item] = x
	} else {
		d.item = int32(len(q.items))
		q.items = append(q.items, x)
	}
	q.heap = append(q.heap, d)
	h := q.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *queue) pop() item {
	h := q.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	q.heap = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	x := q.items[top.item]
	q.items[top.item] = item{}
	q.free = append(q.free, top.item)
	return x
}
