package live_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// spans judges the permits by the slots in which they were issued: no span of
// time d may hold more than most(d). For that the slots that lie wholly within a
// span are enough, and windows need not be known.
func (l *ledger) spans(t *testing.T, slot time.Duration, most func(d time.Duration) int64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var starts []int64
	for start := range l.slots {
		starts = append(starts, start)
	}
	slices.Sort(starts)
	if len(starts) < 20 {
		t.Errorf("permits were issued in %d slots only", len(starts))
	}
	for i, from := range starts {
		sum := int64(0)
		for _, start := range starts[i:] {
			sum += l.slots[start]
			span := time.Duration(start-from) + slot
			if limit := most(span); sum > limit {
				t.Errorf("%d permits in %v from %v on, %d allowed", sum, span, time.Unix(0, from), limit)
				return
			}
			if span > 5*time.Second {
				break
			}
		}
	}
}

// afterChurn returns a group in which members joined under load, one left in good
// order, and one without a word.
func afterChurn(t *testing.T, p quota.Policy, window time.Duration) *group {
	t.Helper()
	g := newGroup(t, p, window)
	all := g.join(4)
	g.ready(all...)
	g.pass(2 * time.Second)
	g.ready(g.join(2)...)
	g.leave(all[:1])
	if err := all[1].session.Close(); err != nil {
		t.Error(err)
	}
	g.pass(3 * time.Second)
	g.stop()
	return g
}

// TestSlidingUnderLoad: who comes and who goes takes and leaves permits of the
// same sliding window.
func TestSlidingUnderLoad(t *testing.T) {
	t.Parallel()
	const window, total = 400 * ms, 60
	p := exact(t, "60/400ms", time.Second)
	p.Shape = quota.ShapeSliding
	g := afterChurn(t, p, window)
	g.ledger.never(t)
	g.ledger.spans(t, protocol.SlotOf(window), func(d time.Duration) int64 {
		return total * int64((d+window-1)/window)
	})
}

// TestBucketUnderLoad: a burst at most, and the rate from then on.
func TestBucketUnderLoad(t *testing.T) {
	t.Parallel()
	const window, total, burst = 400 * ms, 60, 12
	p := exact(t, "60/400ms", time.Second)
	p.Shape, p.Burst = quota.ShapeBucket, burst
	afterChurn(t, p, window).ledger.spans(t, protocol.SlotOf(window), func(d time.Duration) int64 {
		return burst + 1 + int64(d)*total/int64(window)
	})
}
