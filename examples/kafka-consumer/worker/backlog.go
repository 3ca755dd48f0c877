package worker

import "github.com/twmb/franz-go/pkg/kgo"

// item is one record on its way.
type item struct {
	record *kgo.Record
	// rejected counts the provider's refusals of this record, tries all calls
	// that did not succeed.
	rejected, tries int
	reason          string // the last refusal
}

// backlog is what one partition has been polled for and has not finished:
// records that wait, and records that are out, in a worker's hands or waiting
// for their next try.
//
// It is pure, and for one goroutine at a time.
type backlog struct {
	// high is the number of unfinished records at which fetching pauses, low the
	// one at which it goes on. The gap keeps fetching from flapping.
	high, low int
	// ordered lets only one record out at a time.
	ordered bool

	track  tracker
	queue  []*item // not out, ascending
	again  []*item // not out, to be tried again, before the queue
	out    int
	paused bool
}

// push adds a record, and returns false if its offset goes back (see
// tracker.add).
func (b *backlog) push(r *kgo.Record) bool {
	if !b.track.add(r.Offset, r.LeaderEpoch) {
		return false
	}
	b.queue = append(b.queue, &item{record: r})
	return true
}

// take hands out at most n items, nil if there are none now. One that was
// rejected before comes alone: if it is to blame, it does not spoil a batch.
func (b *backlog) take(n int) []*item {
	if b.ordered && b.out > 0 {
		return nil
	}
	var items []*item
	if len(b.again) > 0 {
		items = append(items, b.again[0])
		b.again = b.again[1:]
		for items[0].rejected == 0 && len(items) < n && len(b.again) > 0 && b.again[0].rejected == 0 {
			items = append(items, b.again[0])
			b.again = b.again[1:]
		}
	} else {
		n = min(n, len(b.queue))
		items = append(items, b.queue[:n]...)
		b.queue = b.queue[n:]
	}
	b.out += len(items)
	return items
}

// back takes items back that were not finished: they come next.
func (b *backlog) back(items ...*item) {
	b.out -= len(items)
	b.again = append(b.again, items...)
}

// finish ends items for good.
func (b *backlog) finish(items ...*item) {
	b.out -= len(items)
	for _, i := range items {
		b.track.finish(i.record.Offset)
	}
}

// turn decides whether fetching is to be paused or resumed now, and remembers
// it: +1 pause, -1 resume, 0 leave it.
func (b *backlog) turn() int {
	n := b.track.unfinished()
	switch {
	case !b.paused && n >= b.high:
		b.paused = true
		return +1
	case b.paused && n <= b.low:
		b.paused = false
		return -1
	}
	return 0
}
