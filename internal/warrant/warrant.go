// Package warrant is what entitles one instance to issue permits of one
// provider: the views that it held, the newest proof that they are recent, and
// the corrected clock. It turns them into the terms and bounds that a window.Gate
// asks for, so that the rules of freshness and outage are in one place, which
// the limiter and the simulation both run.
//
// It reads no clock and takes no lock: every method takes the instant at which
// it happens, and the caller keeps calls apart.
package warrant

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// Warrant is an instance's knowledge of one provider. The zero Warrant knows
// nothing and allows nothing. It is not safe for concurrent use.
type Warrant struct {
	// History is the views held. Reset, Apply and Bound are the warrant's own.
	share.History

	proof  clock.Instant // the newest; meaningful if proved
	proved bool
	// frozen bounds the lookback while the view is stale under hold; it is in
	// force if stale is true.
	frozen int64
	stale  bool

	off     safeguard.Set
	expired bool // where safeguard.ComparedInReading is off
}

// Without switches safeguards off, to see that a simulation notices. It is for
// tests.
func (w *Warrant) Without(off safeguard.Set) {
	w.off = off
	w.History.Without(off)
}

// Expire ends the proof where safeguard.ComparedInReading is off: it is what a
// timer would do.
func (w *Warrant) Expire() { w.expired = true }

// Reset starts a new history: at the instant at, the instance self holds v. The
// proof of the old one is gone.
func (w *Warrant) Reset(at clock.Instant, self string, v quota.View) {
	w.History.Reset(at.Mono, self, v)
	w.proof, w.proved = clock.Instant{}, false
}

// Apply moves the newest view on by one revision, and forgets what no window
// can look back to any more.
func (w *Warrant) Apply(at clock.Instant, c quota.Change) bool {
	oldest := at.Mono
	if w.proved {
		oldest = min(oldest, w.proof.Mono)
	}
	w.Prune(oldest - int64(quota.MaxSettle+3*quota.MaxWindow) - int64(quota.MaxSettle))
	return w.History.Apply(at.Mono, c)
}

// Prove says that the view held contains everything that was committed before
// the instant sent. It returns true if that changes more than the proof's end:
// permits that were held back may be issued again.
func (w *Warrant) Prove(sent clock.Instant) (more bool) {
	more = !w.proved || w.stale
	if !w.proved || sent.Mono > w.proof.Mono {
		w.proof, w.proved, w.expired = sent, true, false
	}
	return more
}

// Proof returns the newest proof, and false if there is none.
func (w *Warrant) Proof() (sent clock.Instant, ok bool) { return w.proof, w.proved }

// FreshUntil returns the end of the proof by both clocks: the beginning of time
// if there is none, and, under the rule stop, if the clock is wrong: what it
// proves then cannot be relied on.
func (w *Warrant) FreshUntil(r share.Rules, c *clock.Clock) (mono, wall int64) {
	switch {
	case w.off.Off(safeguard.ProofEnds):
		return window.Forever, window.Forever
	case !w.proved:
		return math.MinInt64, math.MinInt64
	}
	if _, wrong := ClockWrong(r, c); wrong && r.Outage == quota.OutageStop && !w.off.Off(safeguard.ClockAlarm) {
		return math.MinInt64, math.MinInt64
	}
	if w.off.Off(safeguard.ComparedInReading) && !w.expired {
		return window.Forever, window.Forever
	}
	mono, wall = w.proof.Mono+int64(r.Freshness), w.proof.Wall+int64(r.Freshness)
	if w.off.Off(safeguard.WallAge) {
		wall = window.Forever
	}
	return mono, wall
}

// Bound returns how many permits of window win may have been issued by the
// monotonic instant now.
func (w *Warrant) Bound(win quota.Window, now, offset int64) share.Bound {
	frozen := share.NotFrozen
	if w.stale {
		frozen = w.frozen
	}
	return w.History.Bound(win, now, offset, frozen)
}

// Burst returns how many permits of window win may be issued at once by the
// monotonic instant now, where the shape is a bucket.
func (w *Warrant) Burst(win quota.Window, now, offset int64) int64 {
	return w.Bound(win, now, offset).Burst
}

// Terms returns the conditions under which permits may be issued at the instant
// at, the views' shares, draining and the largest share aside. It looks after
// the clock first, so that a suspension is found before it does harm, and
// decides whether Bound looks back further, which it does while the view is
// stale under the rule hold.
func (w *Warrant) Terms(at clock.Instant, c *clock.Clock) window.Terms {
	t := window.Terms{Until: window.Forever, WallUntil: window.Forever}
	if !w.Started() {
		return t
	}
	c.Observe(at)
	t.Lead = c.Offset() + int64(c.Ahead()) + clock.Tolerance
	if w.off.Off(safeguard.ClocksTogether) {
		t.Lead = math.MaxInt64
	}
	policy, _ := w.Policy()
	rules := w.Rules(at.Mono, c.Offset())
	until, wallUntil := w.FreshUntil(rules, c)
	stale := at.Mono >= until || at.Wall >= wallUntil
	if w.off.Off(safeguard.GuardFollows) {
		rules.GuardAuto = 0
	}
	t.Guard = int64(guard(rules, c, at))
	t.Strict = rules.Outage == quota.OutageStop && !w.off.Off(safeguard.StopIsStrict) || !w.proved
	if t.Strict {
		t.Until, t.WallUntil = until, wallUntil
	}
	w.stale = stale && !t.Strict && !w.off.Off(safeguard.HoldFreezes)
	if w.stale {
		w.frozen = w.proof.Mono - int64(rules.Settle)
	}
	shapes := w.Shapes(at.Mono)
	t.Shape = window.Shape{Sliding: shapes.Sliding, Bucket: shapes.Bucket, Unaligned: shapes.Any() && !shapes.Fixed, Skew: int64(shapes.Skew)}
	if policy != nil {
		t.Shape.WarmUp = int64(policy.WarmUp)
	}
	t.Hopeless = policy == nil
	t.Known = policy != nil && (!stale || !t.Strict) && w.ReadyAt() != math.MaxInt64
	return t
}
