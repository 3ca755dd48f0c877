package simulation

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
)

// mark is coordinator's: a write of the host's own report, at which it lists.
type mark struct {
	id       string
	created  int64
	newest   int64
	revision int64
	report   report
	cluster  uint64
	sent     clock.Instant
	begin    view.Position // where the history begins, if not at the mark
	// presentView lists at the mark although the history begins before.
	presentView bool
}

// asOf is the revision at which everything is read.
func (m *mark) asOf() int64 {
	if m.begin.Revision != 0 && !m.presentView {
		return m.begin.Revision
	}
	return m.revision
}

// pages reads everything as it was at the mark, in pages, as long as going says:
// each on the condition that the mark is still there. One that is not answered is
// asked for again.
func (h *host) pages(m mark, going func() bool, done func(m mark, keys []view.Key, n int)) {
	h.page(m, nil, 1+h.r.IntN(3), going, done)
}

func (h *host) page(m mark, keys []view.Key, left int, going func() bool, done func(m mark, keys []view.Key, n int)) {
	if !going() {
		return
	}
	answered := false
	h.at(h.now+retry, func() {
		if !answered {
			answered = true
			h.page(m, keys, left, going, done)
		}
	})
	h.call(func(member int) {
		h.etcd.linear(member, func() {
			moved := max(m.revision, m.asOf()) > h.etcd.revision() || m.asOf() <= h.etcd.compacted || h.etcd.reported(m.id).revision != m.revision
			n, part := 0, keys
			if !moved {
				n = h.etcd.line[m.asOf()-1].state
				part = append(slices.Clip(part), pageOf(h.etcd.states[n].keys, len(part), left)...)
			}
			h.answer(func() {
				switch {
				case answered || !going():
				case moved:
					answered = true
					h.touch(m, going, func(m mark) { h.pages(m, going, done) })
				case left == 1:
					answered = true
					done(m, part, n)
				default:
					answered = true
					h.page(m, part, left-1, going, done)
				}
			})
		})
	})
}

// pageOf returns the next page of keys when so many have been read and so many
// pages are left.
func pageOf(keys []view.Key, read, left int) []view.Key {
	rest := keys[min(read, len(keys)):]
	return rest[:(len(rest)+left-1)/left]
}

// touch makes another mark.
func (h *host) touch(m mark, going func() bool, done func(m mark)) {
	if !going() {
		return
	}
	answered := false
	h.at(h.now+retry, func() {
		if !answered {
			answered = true
			h.touch(m, going, done)
		}
	})
	m.sent, m.report, m.begin = h.read(), h.newReport(m.id, randomDemand(h.r)), view.Position{}
	life := h.etcd.life
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.life != life {
				return // its connection is gone
			}
			there, next := h.etcd.created(m.id) == m.created, m
			next.newest = h.etcd.reported(m.id).revision
			same := there && next.newest == m.newest
			if same {
				next.revision, next.cluster = h.etcd.tell(m.report).revision, h.etcd.cluster
				next.newest = next.revision
			}
			h.answer(func() {
				switch {
				case answered || !going():
				case !there:
					answered = true
					h.anew()
				case !same:
					answered = true
					h.touch(next, going, done)
				default:
					answered = true
					done(next)
				}
			})
		})
	})
}
