package consumer_test

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

var classes = []consumer.Class{consumer.Critical, consumer.Default, consumer.Sheddable}

func (h *play) randomClass() int {
	if !h.mixed {
		return 1
	}
	return h.rng.IntN(len(classes))
}

// behind returns the place in the queue behind all of a class and of higher ones.
func (h *play) behind(class int) int {
	if i := slices.IndexFunc(h.queue, func(c *call) bool { return c.class > class }); i >= 0 {
		return i
	}
	return len(h.queue)
}

// push notes that a newcomer comes before those of lower classes.
func (h *play) push(class int) {
	for _, c := range h.queue[h.behind(class):] {
		c.disturbed, c.headSince = true, 0
	}
}

func (h *play) takeUpTo(n int64) {
	class := h.randomClass()
	p := takeUpTo(h.l[0].Class(classes[class]), n)
	got := count(p)
	h.note("take up to %d for %s: %d", n, classes[class], got)
	switch least, known := h.atLeast(now(), now(), class); {
	case h.newest().Mode == quota.ModeShadow:
		if got != n {
			h.wrong("shadow", "%d of %d", got, n)
		}
	case known && h.behind(class) == 0 && got < min(n, least):
		h.wrong("truth", "%d of %d, and there are %d", got, n, least)
	}
	h.permitIssued(got, class)
	if got > 0 && h.newest().Mode != quota.ModeShadow {
		h.permits = append(h.permits, permit{p, now()})
	}
}

// kept returns how many permits of a share are kept from calls of a class: the policy's part,
// in as many equal parts as there are permits and at most 20, of which one is released after
// another, so that in the last of these times none is kept.
func (m *model) kept(length time.Duration, share int64, class int, now int64) int64 {
	p := m.newest()
	whole := (share*p.Critical + 99) / 100
	if class == 0 || m.debt > 0 || whole == 0 {
		return 0
	}
	parts, guard := min(whole, 20), int64(p.Guard)
	over := max(0, now-windowStart(length, now)-guard) / ((int64(length) - 2*guard) / (parts + 1))
	return whole * (parts - min(over, parts)) / parts
}
