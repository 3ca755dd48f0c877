package plans

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// Plan says how many permits one instance may issue, from the instant for which it
// was made until the instant Until. All of it follows from one reading of the
// clock's offset. A plan never changes; news makes another one.
type Plan struct {
	// Until is the first instant at which anything below may differ without
	// news: a window's edge, a guard's, or the end of a pause. It is later than
	// the instant for which the plan was made, and clock.Forever only while nothing is
	// known of any limit.
	Until int64
	// Windows are those of the Limits and of the provider's long limits.
	Windows
	// Limits are the limits that bind, shortest window first; no two of them have
	// the same window length. Without any nothing is issued.
	Limits []Limit
	// Keys are the windows of keys; nil if keys have no limits.
	Keys *Keys
	// PausedUntil is the instant before which nothing is issued because the
	// provider wants to be left alone; 0 if there is none.
	PausedUntil int64
	// Begins is the instant before which this instance has no share if there is no news; 0 if that is not
	// known.
	Begins int64
	// Shadow says that requests pass even if their permits cannot be issued.
	Shadow bool
	// Hopeless says that waiting makes no sense: all waiters are refused.
	Hopeless bool
	// Known says that Foresee tells the future, so that a waiter that cannot be
	// served in time is refused before it waits.
	Known bool
	// Critical is the policy's: the part of each share, in percent, that is kept for critical
	// calls at a window's start.
	Critical int64

	Proof  Proof
	Pacing shape.Pacing
	Shape  shape.Shape
}

// Limit is one limit's window, and the permits that may be issued in it.
type Limit struct {
	Window quota.Window
	// Permits is the most that may have been issued in Window; shape.Unbounded if no
	// limit constrains it. Under other shapes than aligned windows it is the
	// share at this moment.
	Permits int64
	// Burst is how many of them may be issued at once under Shape.Bucket.
	Burst int64
	// Most is what Permits often is in later windows, if there is no news; 0 if that is
	// unknown.
	Most int64

	// Later is the most that Limit is in later windows, if there is no news; shape.Unbounded if
	// there may be no limit.
	Later int64
	// Limit is the policy's limit. It bounds what an instance has, borrowed permits included.
	Limit     int64
	Instances int // that share it, for operators
}

// Proof is the evidence that the views behind a plan are recent. It binds only
// if Strict.
type Proof struct {
	// Strict says that permits may be issued only before Until and WallUntil, the
	// proof's end by the monotonic and by the uncorrected wall clock.
	Strict           bool
	Until, WallUntil int64
	// Lead is the largest difference between the uncorrected wall clock and the
	// monotonic one at which permits may be issued. More means that the machine
	// was suspended, or its clock set, and that windows cannot be told.
	Lead int64
}

// Over reports whether the proof does not allow permits at the instant at.
func (p *Proof) Over(at clock.Instant) bool {
	return p.Strict && (at.Mono >= p.Until || at.Wall >= p.WallUntil || p.Parted(at))
}

// Parted reports whether the two clocks have parted by more than Lead allows, also if the proof does not bind.
func (p *Proof) Parted(at clock.Instant) bool { return at.Wall-at.Mono > p.Lead }

// Lending says what an instance lends and borrows. The zero Lending is nothing.
type Lending struct {
	// Self is the incarnation that lends and borrows.
	Self string
	// Hash is that of Self.
	Hash uint64
	// Lends says that it may lend, and Borrows that it may ask. Both are false where nothing is lent: see Plan.Lendable.
	Lends, Borrows bool
	// Cut says that nothing is lent only because etcd does not answer.
	Cut bool
	// Instances are those of the fleet, with those that take part in later windows only.
	Instances int
}

// Gradual reports whether permits come along a window, not only at its start.
func (p *Plan) Gradual() bool { return p.Pacing.Even || p.Shape.Any() }

// Lendable reports whether permits of the provider can be lent under the plan, by instances that may. None are
// under other shapes than aligned windows, nor in windows that are too short for it.
func (p *Plan) Lendable() bool {
	for i := range p.Limits { // the shortest that binds
		if l := &p.Limits[i]; l.Permits != shape.Unbounded {
			return l.Window.Length >= protocol.MinLending && !p.Shape.Any() && !p.Shadow
		}
	}
	return false
}

// Terms are those of the plan for windows as long as w, as of a monotonic instant. owes says that a debt is
// paid.
func (p *Plan) Terms(w quota.Window, now int64, owes bool) shape.Terms {
	return shape.Terms{Now: now, Offset: p.Offset, Guard: p.Guard, Burst: p.LimitOf(w).Burst, Owes: owes, Shape: p.Shape, Pacing: p.Pacing}
}

// Room is the most permits that one request can have under the plan, if nothing
// else is issued.
func (p *Plan) Room() int64 {
	return p.RoomIn(func(l *Limit) (permits, burst int64) { return l.Permits, l.Burst })
}

// RoomLater is the same for later windows. Under shapes it is Room.
func (p *Plan) RoomLater() int64 {
	if p.Shape.Any() {
		return p.Room()
	}
	return p.RoomIn(func(l *Limit) (permits, burst int64) { return max(l.Permits, l.Most), l.Burst })
}

// RoomIn is Room of windows that hold so many permits, and so many of them at once.
func (p *Plan) RoomIn(of func(*Limit) (permits, burst int64)) int64 {
	room := shape.Unbounded
	for i := range p.Limits {
		permits, burst := of(&p.Limits[i])
		if room = min(room, permits); p.Shape.Bucket {
			room = min(room, burst)
		}
	}
	if room == shape.Unbounded {
		return 0
	}
	for i := range p.Budgets {
		room = min(room, p.Budgets[i].Permits)
	}
	return max(0, room)
}

// LimitOf returns the limit of windows as long as w; one without a bound if there is none.
func (p *Plan) LimitOf(w quota.Window) *Limit {
	for i := range p.Limits {
		if p.Limits[i].Window.Length == w.Length {
			return &p.Limits[i]
		}
	}
	return &noLimit
}

var noLimit = Limit{Permits: shape.Unbounded}

// StartOf returns the monotonic instant at which a window starts.
func (p *Plan) StartOf(w quota.Window) int64 { return w.Start() - p.Offset }

// InASecond returns how many of a window's permits come in a second, rounded up.
func InASecond(permits int64, window time.Duration) int64 {
	length := int64(window / time.Millisecond)
	return (permits*1000 + length - 1) / length
}

// maxDrift is the largest change of the clock's offset, in nanoseconds, after which plans
// that were foreseen still hold.
const maxDrift = 1_000_000

// drifted reports whether the clock's offset has changed by more than that.
func (p *Plan) drifted(o *Plan) bool {
	drift := p.Offset - o.Offset
	return max(drift, -drift) > maxDrift
}

// Worse reports whether the plan allows less than the plan o, which was foreseen
// for the same time.
func (p *Plan) Worse(o *Plan) bool {
	if p.drifted(o) || p.Shut && !o.Shut || len(p.Limits) != len(o.Limits) || p.Guard != o.Guard || !slices.Equal(p.Budgets, o.Budgets) {
		return true
	}
	for i := range p.Limits {
		a, b := &p.Limits[i], &o.Limits[i]
		if a.Window != b.Window || a.Permits < b.Permits || a.Burst < b.Burst {
			return true
		}
	}
	return false
}
