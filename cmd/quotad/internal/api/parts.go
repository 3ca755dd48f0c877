package api

import (
	"errors"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// maxHold bounds the time from a window's beginning in which its parts are kept.
const maxHold = 500 * time.Millisecond

// parts keep for each client that calls its part of a window's permits, for the first half of
// the window, if another client lacked permits in the window before. Without that a client whose calls follow each other faster takes most of a
// window before the others have sent their next call, however fair the order of those that
// wait is. A call beyond its client's part is early: it waits, if it may wait at all.
type parts struct {
	mu   sync.Mutex
	end  time.Time           // of the window; by the windows' clock
	free time.Time           // when nothing is kept any more
	all  int64               // permits that the parts are of
	sum  int64               // permits taken
	got  counts[fair.Client] // of these, until free
	use  active              // when the first part was asked for; nil: none was

	begun  time.Time
	lack   lacking // in this window
	lacked lacking // in the window before: while no other client did, nothing is kept
}

// lacking are up to two of the clients that were refused, or that waited for another window.
type lacking struct {
	some [2]fair.Client
	n    int
}

func (l *lacking) add(c fair.Client) {
	if l.n < len(l.some) && (l.n == 0 || l.some[0] != c) {
		l.some[l.n] = c
		l.n++
	}
}

// besides reports whether another client than c lacked permits.
func (l *lacking) besides(c fair.Client) bool {
	return l.n == 2 || l.n == 1 && l.some[0] != c
}

// atOnce is how long a call may take that has waited for no window.
const atOnce = 10 * time.Millisecond

func newParts() parts { return parts{got: counts[fair.Client]{}} }

// countLocked counts n permits of a client, while that matters.
func (p *part) countLocked(n int64) {
	if o := &p.provider.parts; time.Now().Before(o.free) {
		o.got.add(p.client, n)
	}
}

// claim counts n permits that a client is about to take, in the window that ends at end. If
// the call is early it counts nothing, and returns how long that lasts.
func (p *part) claim(n int64) (end time.Time, wait time.Duration) {
	o := &p.provider.parts
	o.mu.Lock()
	defer o.mu.Unlock()
	if wait = p.earlyLocked(n); wait == 0 {
		p.countLocked(n)
	}
	return o.end, wait
}

// early reports whether a call for n permits is early.
func (p *part) early(n int64) bool {
	o := &p.provider.parts
	o.mu.Lock()
	defer o.mu.Unlock()
	return p.earlyLocked(n) > 0
}

func (p *part) earlyLocked(n int64) time.Duration {
	o := &p.provider.parts
	wait, got := time.Until(o.free), o.got[p.client]
	if wait <= 0 || got == 0 || !o.lacked.besides(p.client) {
		return 0
	}
	if o.use == nil {
		o.use = p.provider.active()
	}
	own := max(1, o.all/o.use.parts(p.client))
	if own >= o.all || got+n <= own {
		return 0
	}
	return wait
}

// counted counts the outcome of a call for n permits that were claimed in the window that
// ends at claimed, and returns it.
func (p *part) counted(permit consumer.Permit, n int64, claimed time.Time, err error) (consumer.Permit, error) {
	o := &p.provider.parts
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		p.took = permit
		if start := permit.Start(); !start.Before(o.end) {
			o.begin(p.limiter, start)
			o.end = permit.Until()
		}
		o.sum += permit.N()
		p.countLocked(permit.N())
	}
	if waited := !p.began.IsZero() && o.begun.Sub(p.began) > atOnce; waited || errors.Is(err, consumer.ErrLimited) {
		o.lack.add(p.client)
	}
	if claimed.Equal(o.end) {
		p.countLocked(-n)
	}
	return permit, err
}

// begin begins a window. Its parts are of what this host took in the window before, if that
// is more than its share: it borrows.
func (o *parts) begin(l *consumer.Limiter, start time.Time) {
	use := l.Status().Shortest()
	all, hold := use.Share, min(use.Limit.Window/2, maxHold)
	lacked := lacking{}
	if start.Equal(o.end) {
		all, lacked = max(all, o.sum), o.lack
	}
	if use.Limit.Window > quota.MaxWindow {
		hold = 0
	}
	now := time.Now()
	o.all, o.sum, o.free, o.use = all, 0, now.Add(hold), nil
	o.begun, o.lacked, o.lack = now, lacked, lacking{}
	clear(o.got)
}

// gave takes back n permits of the window that ends at end.
func (p *part) gave(n int64, end time.Time) {
	o := &p.provider.parts
	o.mu.Lock()
	defer o.mu.Unlock()
	if end.Equal(o.end) {
		o.sum -= n
		p.countLocked(-n)
	}
}

// undo takes back what the part took: it is released.
func (p *part) undo() {
	p.gave(p.took.N(), p.took.Until())
	p.took = consumer.Permit{}
}
