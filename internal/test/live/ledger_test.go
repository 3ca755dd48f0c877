package live_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// ledger holds what a fleet was issued, by window, and which policies were in
// force when. It counts by itself, never by the limiters' own counters.
type ledger struct {
	lengths []time.Duration

	mu     sync.Mutex
	issued map[quota.Window]int64
	// unsure counts for each window the permits that may be of it or of a
	// neighbour: never has none of them, full and always have all.
	unsure map[quota.Window]int64
	// slots has what was issued by Permit.Start: with shapes other than fixed
	// windows, the slot of time.
	slots   map[int64]int64
	changes []change
}

// change is a policy being written, nil if it was deleted. It was committed
// between sent and acked.
type change struct {
	sent, acked int64
	policy      *quota.Policy
}

// changing notes that a policy is about to be written, and the function that it
// returns that it has been.
func (l *ledger) changing(p *quota.Policy) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p != nil {
		d := p.WithDefaults()
		p = &d
	}
	i := len(l.changes)
	l.changes = append(l.changes, change{sent: time.Now().UnixNano(), policy: p})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changes[i].acked = time.Now().UnixNano()
	}
}

// add counts a permit, in windows of every length. A permit knows its window of
// the shortest length that bound it, and was taken between the readings before
// and after of the limiter's clock (before is 0 if there was none). If a window
// may have ended meanwhile, nobody can tell whether it was this one or a later
// one.
func (l *ledger) add(p consumer.Permit, before, after int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last := p.Start().UnixNano(), p.Until().UnixNano()-1
	if l.slots == nil {
		l.slots = map[int64]int64{}
	}
	l.slots[first] += p.N()
	lo, hi := max(first, before), min(last, after)
	for _, length := range l.lengths {
		w, last := quota.WindowAt(length, lo), quota.WindowAt(length, hi)
		if w == last {
			l.issued[w] += p.N()
			continue
		}
		for ; w.Index <= last.Index; w.Index++ {
			l.unsure[w] += p.N()
		}
	}
}

// full returns a window that starts at or after from and has all its permits.
func (l *ledger) full(length time.Duration, from, total int64) (quota.Window, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, n := range l.issued {
		if w.Length == length && w.Start() >= from && n <= total && n+l.unsure[w] >= total {
			return w, true
		}
	}
	return quota.Window{}, false
}

// since returns how many permits there are of windows that start at or after
// from, by the shortest length.
func (l *ledger) since(from int64) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, issued := range l.issued {
		if w.Length == l.lengths[0] && w.Start() >= from {
			n += issued
		}
	}
	return n
}

// allowed returns the largest total among the policies that can have been in
// force, for windows of that length, at some time from S before the window's
// start until S' before it: all instances that are fresh have held each of the
// policies in force then. Where the next ones only give more, until the window ends,
// the last of them counts. limited is false if one of those may not have limited the
// length.
func (l *ledger) allowed(w quota.Window) (total int64, limited bool) {
	var settle time.Duration
	freshness := quota.MaxSettle
	for _, c := range l.changes {
		if c.policy == nil {
			settle, freshness = max(settle, quota.DefaultSettle), min(freshness, quota.DefaultFreshness)
			continue
		}
		settle, freshness = max(settle, c.policy.Settle), min(freshness, c.policy.Freshness)
	}
	from, to := w.Start()-int64(settle), w.Start()-int64(freshness)
	for i, c := range l.changes {
		if i+1 < len(l.changes) && l.changes[i+1].acked < from {
			continue
		}
		if i > 0 && c.sent > to {
			break
		}
		n, ok := totalOf(c.policy, w.Length)
		if !ok {
			return 0, false
		}
		for _, next := range l.changes[i+1:] {
			more, ok := totalOf(next.policy, w.Length)
			if !ok || more < n || c.policy == nil || next.policy == nil || next.sent >= w.End()+int64(next.policy.ClockError) {
				break
			}
			n = more
		}
		total = max(total, n)
	}
	return total, true
}

// totalOf is the limit that a policy sets for a window length.
func totalOf(p *quota.Policy, length time.Duration) (total int64, limited bool) {
	if p == nil || p.Mode == quota.ModePause {
		return 0, true
	}
	for _, l := range p.Limits {
		if l.Window == length {
			return l.Permits, true
		}
	}
	return 0, false
}

// never reports the windows for which more was issued than was allowed. It
// fails too if there was nothing to judge.
func (l *ledger) never(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	judged := 0
	for w, n := range l.issued {
		total, limited := l.allowed(w)
		if !limited {
			continue
		}
		judged++
		if n > total {
			t.Errorf("window %v from %v: %d issued, %d allowed%s", w.Length, time.Unix(0, w.Start()), n, total, l.story(w))
		}
	}
	if judged < 3 {
		t.Errorf("only %d windows could be judged", judged)
	}
	t.Logf("%d windows judged", judged)
}

// story says when the policies changed, as seen from a window.
func (l *ledger) story(w quota.Window) (text string) {
	for i, c := range l.changes {
		text += fmt.Sprintf("\n  change %d at %v", i, time.Duration(c.sent-w.Start()).Round(time.Millisecond))
		if c.policy == nil {
			text += ": deleted"
			continue
		}
		text += fmt.Sprintf(": %v, %s, settle %v, freshness %v", c.policy.Limits, c.policy.Mode, c.policy.Settle, c.policy.Freshness)
	}
	return text
}
