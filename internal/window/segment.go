package window

import (
	"math"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// Calls take permits of two things without a lock, and both are in this file. A Segment has the provider's permits, and
// is published by the gate. A Front has those of a key, and is opened by whoever holds the lock of the key's Account. A
// call for a key takes of both: see Front.Take. backed.go moves permits between the two.

// sealed is the value of Segment.left after the segment has ended. It is less
// than every number of permits, so that taking fails as it does when none are
// left.
const sealed = math.MinInt64 / 2 // half of the least: a floor (Segment.floor) can be taken off it without overflow

// Segment has the provider's permits that may be issued in a span of time. Calls take them. While callers wait, the gate
// takes the permits out for its queue, and puts back those that a newcomer may have before the waiting callers
// (Line.besides). While nobody waits, it can also put in what comes back (backInPlaceLocked). The segment ends at until, or
// when the gate counts anew (Gate.rebuildLocked): then the gate seals it and publishes the next one.
//
// All methods are safe for concurrent use.
type Segment struct {
	// left is the number of permits that may still be taken, or sealed.
	//
	//	n >= 0  -> n-k     any caller, by compare-and-swap. A critical call needs k <= n, any
	//	                   other k <= n-floor
	//	n >= 0  -> n-k     Gate.Back, under the gate's lock, by compare-and-swap: these k
	//	                   back a front
	//	n >= 0  -> 0       the gate, under its lock, when a caller starts to wait, or comes
	//	                   while others wait: the rest belongs to the queue
	//	0       -> n       the gate, under its lock: newcomers may have these n before
	//	                   those who wait
	//	n >= 0  -> n+k     the gate, under its lock: k came back, and nobody waits; or k
	//	                   backed a front until now
	//	n >= 0  -> sealed  the gate, under its lock; the swap returns the exact
	//	                   rest, and no caller can take of left any more
	//
	// Nothing leaves the state sealed.
	left atomic.Int64

	// backed is the front, of some one key, that permits of this segment back: see Front. These permits are not in left. It is
	// written under the gate's lock: by Gate.Back, and by unback, which makes it nil before it takes the permits back. It
	// stays set once calls have taken them all.
	backed atomic.Pointer[Front]

	// All else never changes once the segment is published.

	// until is the monotonic instant from which on nothing may be taken: the next
	// edge, or the end of the proof if that is earlier. Takers compare it with their
	// own clock reading, so that a process that slept through the edge cannot take
	// from an old window.
	until int64
	// wallUntil is the end of the proof by the uncorrected wall clock, which goes on
	// while a suspended machine's monotonic clock stands still. It counts only if
	// Strict.
	wallUntil int64

	// Strict says that the proof binds: the outage rule is stop, or nothing is proved yet. Before any Take the caller then
	// checks WallValid too. Take and Open compare the monotonic clock only.
	Strict bool
	// Stale says that the proof is over. Only a Strict segment is Stale: under the outage rule hold, only before the first
	// proof. It has no permits, and no debt of a key may be paid. until is then the edge alone; wallUntil and lead are
	// clock.Forever.
	Stale bool
	// Shadow says that requests pass even if no permits are left.
	Shadow bool
	// lead is the most that Wall - Mono may be: the clocks' offset, plus what they may have parted (Proof.Lead). More means
	// that the machine was suspended, or its clock set. It counts only if Strict.
	lead int64
	// floor is how many of the permits left are kept for critical calls.
	floor int64
	// large: a call without a key that wants more than this goes by the queue (Leaves). 0 says that none does: nothing can be borrowed
	// here.
	large int64
	// Grant is the window of the permits.
	Grant queue.Grant
	// Keys are those of the plan: the windows of keys. They are nil if keys have no limits, or the gate is closed.
	Keys *plans.Keys
	// KeysLend says that permits of keys may be lent.
	KeysLend bool
}

// Take takes n permits for a call of class c, all or none, at the monotonic instant now. It fails if left has fewer
// than n for the class, or if now is not before until; Open tells which. It does not take permits that
// back a front (Gate.Unback puts those into left again), and does not look at the wall clock: of a Strict segment the
// caller has checked WallValid.
func (s *Segment) Take(now, n int64, c queue.Class) bool {
	if now >= s.until {
		return false
	}
	floor := s.keeps(c)
	for {
		left := s.left.Load()
		if left-floor < n {
			return false
		}
		if s.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// keeps returns how many permits a call of class c must leave.
func (s *Segment) keeps(c queue.Class) int64 {
	if c == queue.Critical {
		return 0
	}
	return s.floor
}

// TakeUpTo takes as many permits as are left for a call of class c, at most n, and returns
// their number.
func (s *Segment) TakeUpTo(now, n int64, c queue.Class) int64 {
	for s.Open(now) {
		if k := min(s.LeftFor(c), n); k == 0 || s.Take(now, k, c) {
			return k
		}
	}
	return 0
}

// WallValid reports whether the uncorrected wall clock allows taking: the proof has not ended by it, and the two clocks
// have not parted (lead). Takers of a Strict segment check it beside until. Of a Stale segment, which has no permits, it is
// always true.
func (s *Segment) WallValid(at clock.Instant) bool {
	return at.Wall < s.wallUntil && at.Wall-at.Mono <= s.lead
}

// Leaves reports whether n permits make a call without a key large. Such a call goes by the queue if it may wait: the
// queue keeps back what small calls will want.
func (s *Segment) Leaves(n int64) bool { return s.large > 0 && n > s.large }

// Open reports whether the segment is the one to ask at the monotonic instant now. If
// it is not, the gate must move on first.
func (s *Segment) Open(now int64) bool {
	return now < s.until && s.left.Load() != sealed
}

// Left returns the permits in left, 0 once the segment is sealed. It includes those kept for critical calls, and not
// those that back a front (backs).
func (s *Segment) Left() int64 { return max(0, s.left.Load()) }

// LeftFor returns how many of Left a call of class c can take.
func (s *Segment) LeftFor(c queue.Class) int64 { return max(0, s.left.Load()-s.keeps(c)) }

// passed is the grant of a call that shadow mode lets pass. It has no Epoch, since no permits were issued that could be
// given back.
func (s *Segment) passed() queue.Grant {
	return queue.Grant{Start: s.Grant.Start, End: s.Grant.End, At: s.Grant.At}
}

// seal ends the segment and returns the number of permits left, or sealed if it had ended before. What backs a front can
// be taken until unback: see settleLocked. The gate's lock is held.
func (s *Segment) seal() int64 { return s.left.Swap(sealed) }

// withhold takes away all that is left and returns it. Takers then find the segment spent. The gate's lock is held, the
// segment is not sealed, and no permits back a front: currentLocked has put them into left before.
func (s *Segment) withhold() int64 { return s.left.Swap(0) }

// Front is what calls can have of a key's Account without the account's lock: some of the permits that the key has
// left, or the answer that it has none. Whoever takes the lock to look at the account shuts the front first (Shut), and
// books what calls have had of it, less what they have given back: so while the lock is held the account counts every
// permit. Only More books without shutting the front, so that calls go on taking of it. The zero Front is shut.
//
// A call takes the key's permits of the front, and then the provider's of the segment. If the segment
// gives some it is not sealed, so no later plan is in force. The front names the windows of the plan by
// which it was opened: a call whose segment names other windows goes to the account. So both permits are within
// the bounds in force. If the segment gives none, the key's permits are given back to its
// account: see Account.Uncharge.
//
// Where calls crowd on a front, the two words that each of them changes, the front's and the segment's, go from
// processor to processor. So permits of the segment that runs may back the front: a call then takes those of both
// by its front's word alone. The gate counts them as permits that are left. Where it needs them in the segment, it
// takes them back first (currentLocked), as it does when the segment ends (settleLocked). So a call
// that finds its front backed by its segment takes within the bounds in force, as a call does that takes of a segment which
// is not sealed.
type Front struct {
	// windows are those of the account when the front was last opened, or set to refuse.
	windows atomic.Pointer[plans.Windows]
	// state is a Part: the mode, its count, the permits that back the front, and two things that are fixed while it is
	// open: the account's epoch, and which windows bind the key.
	//
	//	shut     -> open(n)     Open, under the account's lock
	//	shut     -> spent(0)    Refuse, under the account's lock
	//	open(n)  -> open(n-k)   any caller that takes k <= n, by compare-and-swap
	//	open(n)  -> open(n+k)   Return, by any caller, if n+k <= MostOut
	//	open(n)  -> open(n+k)   More, under the account's lock
	//	spent(n) -> spent(n+k)  any caller to whom k are refused, by compare-and-swap
	//	any      -> shut        Shut, under the account's lock; it reads the exact count in the same step, and no call
	//	                        can change that any more
	//
	// In each mode it also has the number of permits of the provider that back the front:
	//
	//	b -> b+k   Gate.Back, under the gate's lock, takes k off the field left of the segment that runs
	//	b -> b-k   any caller that takes k of the key too, by the same compare-and-swap
	//	b -> 0     Segment.unback, under the gate's lock; it returns the exact number
	//
	// A call that takes of what backs the front reads the state, sees that permits of its segment back it (backed == f),
	// and compares and swaps. unback clears backed before it takes the permits. So if nobody has taken them back since the
	// first step, the call takes permits of its own segment. Even if that is sealed, its end is not booked before unback,
	// which tells how many were taken.
	//
	// If they were taken back between the first step and the third, the swap still succeeds if somebody has since put the
	// same state there (ABA). That is safe:
	//
	//   - the provider's permits come from the segment that backs the front now, which counts them;
	//   - the key's come from the front as it is now, so by the newest bounds, and in the same windows, since the state
	//     has the account's epoch;
	//   - no window is used that had ended before the call came: the segment is the same or a later one;
	//   - a shape books the permits at the edge of that segment. That may be before the edge of the call's own segment, but
	//     it is later than the call: the call for which Gate.Back was run on that segment came after this one, and found the
	//     segment open.
	//
	// The call's permit has the Grant of its older segment all the same. Where windows are aligned, and the provider has
	// entered another one by then, the permit cannot be given back.
	state atomic.Uint64
}

// Part is the state of a Front. It has, from the lowest bit: how many permits of the key are left (8 bits); how many of
// the provider back the front (8); which of the windows that run bind the key (8); the mode with its flags (8); and 32
// bits that are the account's epoch if the front is open, and how many permits were refused if it refuses.
type Part uint64

const (
	partBacks   = 8
	partBinds   = 16
	partMode    = 24
	partEpoch   = 32
	partRefused = partEpoch

	partOpen  Part = 1 << partMode
	partSpent Part = 2 << partMode
	// The flags stand beside the mode.
	//
	// partTrades says, of a front that is open or spent, that the account has a Trade, which counts calls by class: so only
	// calls of the default class may use the front. Nor may a call use it that wants more than one permit and may wait: it
	// could be a large one, which must leave small calls what they will want.
	partTrades Part = 4 << partMode
	// partQuiet says that the front refuses, and that these refusals are added to the sum over all keys by whoever shuts
	// the front: Shut returns how many there are. Without it each caller adds its own at once.
	partQuiet Part = 8 << partMode
	// partAtOnce says that the front refuses, and that calls have changed it at the same time since it was set to do so.
	partAtOnce Part = 16 << partMode
	partModes       = 0xff << partMode

	// MostOut is the most permits of the key that lie in a front, and of the provider that back it.
	MostOut = 255
	// mostRefused and mostQuiet are the most permits that a front counts as refused, before it has a call ask the account:
	// mostQuiet if it is quiet. Until the front is shut, neither the counters of the busiest keys (package consumer) nor the
	// account know what it refused, and the account decides whether others are asked for permits. These constants bound how
	// much is missing there.
	mostRefused, mostQuiet = 255, 4095
	// few: below so many permits, of the key or of the provider, a backed front is due for more (Fronted's Crowded). Gate.Back then
	// fills the provider's up to MostOut. More fills the key's only up to the constant enough, so that there is room for
	// permits that come back.
	few, enough = 64, 192
)

func (p Part) count() int64 { return int64(p & MostOut) }

func (p Part) backs() int64 { return int64(p >> partBacks & MostOut) }

// refused returns how many permits a front that is spent has refused.
func (p Part) refused() int64 { return int64(p >> partRefused) }

// mayRefuse returns how many permits more a front that is spent may refuse before it has a call ask the account.
func (p Part) mayRefuse() int64 {
	if p.Quiet() {
		return mostQuiet - p.refused()
	}
	return mostRefused - p.refused()
}

// Quiet reports whether the front refuses, and is quiet: see partQuiet.
func (p Part) Quiet() bool { return p&partQuiet != 0 }

// Epoch returns the account's epoch for permits that were taken in this state, of a front that was open: see
// Account.Epoch.
func (p Part) Epoch() uint32 { return uint32(p >> partEpoch) }

// Span returns the start and the end of the time that the windows which bind the key have in common, in corrected wall
// time, as Account.Common does. p is a state in which permits were taken, and windows are those that the front named then.
func (p Part) Span(windows *plans.Windows) (start, end int64) {
	end = clock.Forever
	for i, w := range windows.Running {
		if p>>(partBinds+i)&1 != 0 {
			start, end = max(start, w.Start()), min(end, w.End())
		}
	}
	return start, end
}

// Fronted is what a Front says to a call.
type Fronted uint8

const (
	Ask     Fronted = iota // ask the account, under its lock; the front has changed nothing
	Taken                  // the call has the permits of both
	Refused                // the key has none left, and the front has counted the refusal
	Torn                   // the call has the key's permits, but the provider's are gone: Account.Uncharge is due
	// Crowded is as Taken, and Gate.Back and More are due. Either the front is backed, and has few permits left, of the key
	// or of the provider; or the call took the provider's permits of the segment, and others changed the front at the
	// same time.
	Crowded
)

// Take takes n permits of the key and n of the provider, for a call of class c at the monotonic instant
// now. s has Keys, and the caller has seen that it was open at now and, if it is Strict, valid by the wall clock. refuses
// says that the call is over if the key has none left; without it such a call asks the account. The Part is the front's
// state before the call; 0 with Ask.
func (f *Front) Take(s *Segment, now, n int64, c queue.Class, refuses bool) (Part, Fronted) {
	for crowded := false; ; crowded = true {
		p := Part(f.state.Load())
		switch {
		case f.windows.Load() != &s.Keys.Windows: // set stores the windows before the state, so they are those of p, or later ones
			return 0, Ask
		case p&partTrades != 0 && (c != queue.Default || n > 1 && !refuses): // it may be large, and wait
			return 0, Ask
		case p&partOpen != 0 && n <= min(p.count(), p.backs()) && s.backed.Load() == f && now < s.until:
			if floor := s.keeps(c); floor > 0 && s.left.Load()+p.backs()-n < floor { // the floor may be met by what backs the front: that counts as left
				return 0, Ask
			}
			if !f.state.CompareAndSwap(uint64(p), uint64(p)-uint64(n)-uint64(n)<<partBacks) {
				continue
			}
			if min(p.count(), p.backs()) < few {
				return p, Crowded
			}
			return p, Taken
		case p&partOpen != 0 && n <= p.count():
			if s.left.Load()-s.keeps(c) < n {
				return 0, Ask
			}
			if !f.state.CompareAndSwap(uint64(p), uint64(p)-uint64(n)) {
				continue
			}
			switch {
			case !s.Take(now, n, c):
				return p, Torn
			case crowded:
				return p, Crowded
			}
			return p, Taken
		case p&partSpent != 0 && refuses && n <= p.mayRefuse():
			to := p + Part(n)<<partRefused
			if crowded {
				to |= partAtOnce
			}
			if f.state.CompareAndSwap(uint64(p), uint64(to)) {
				return p, Refused
			}
		default:
			return 0, Ask
		}
	}
}

// Return gives n permits of the key back to the front, and returns true. They were taken in the given epoch of the
// account (Account.Epoch), from the front or from the account itself. The caller has given back the provider's n permits
// before. Return changes nothing, and returns false, if they must be given back to the account: the front is not open,
// it was opened in another epoch or by other windows than the segment s names, or it has no room for n more.
func (f *Front) Return(s *Segment, n int64, epoch uint32) bool {
	for {
		p := Part(f.state.Load())
		if p&partOpen == 0 || p.Epoch() != epoch || s.Keys == nil || f.windows.Load() != &s.Keys.Windows || n > MostOut-p.count() {
			return false
		}
		if f.state.CompareAndSwap(uint64(p), uint64(p)+uint64(n)) {
			return true
		}
	}
}

// Open lays permits that the account has left into the front, which is shut: at most as many as the parameter most
// says, and at most MostOut. It lays none if the account has long limits, for which it must see each call, or more than
// eight windows. If the account has a trade, the last keyTrade.low permits stay out of the front until Low is true: so
// the call that takes the first of them comes to the account, and others are asked for more.
//
// The caller holds the account's lock, and under that lock has taken permits of a segment with the account's windows: so
// these windows are in force.
func (f *Front) Open(a *Account, most int64) {
	n := a.mayLay(most)
	if n <= 0 || len(a.budgets) > 0 || len(a.windows.Running) > partMode-partBinds {
		return
	}
	p := partOpen | Part(a.epoch)<<partEpoch | Part(n)
	for i, w := range a.windows.Running {
		if s := a.span(w); s != nil && s.Bound != shape.Unbounded {
			p |= 1 << (partBinds + i)
		}
	}
	if f.set(a, p) {
		a.laid = uint8(n)
	}
}

// mayLay returns how many permits of the account may lie in a front, those that lie there included, at most as many as
// the parameter most says: see Front.Open.
func (a *Account) mayLay(most int64) int64 {
	n := min(most, a.Left(), MostOut)
	if t := a.trade; t != nil && !a.Low() {
		n = min(n, a.LeftToBorrowers()-t.low)
	}
	return n
}

// More books what calls have had of a front that is open, and lays more permits into it by the rules of Open, until as
// many lie there as the constant enough says. The front stays open meanwhile: calls that crowd on it go on, and few find
// it empty. It returns how many were taken since it was opened or last booked, less those given back, so it may be less
// than 0. It does nothing if the front is not open. The account's lock is held.
func (f *Front) More(a *Account) (taken int64) {
	for {
		p := Part(f.state.Load())
		if p&partOpen == 0 {
			return taken
		}
		had := int64(a.laid) - p.count()
		a.Charge(had)
		a.laid = uint8(p.count())
		taken += had
		more := a.mayLay(enough) - p.count()
		if more <= 0 {
			return taken
		}
		if f.state.CompareAndSwap(uint64(p), uint64(p)+uint64(more)) {
			a.laid += uint8(more)
			return taken
		}
	}
}

// Refuse has the front refuse calls from now on, if the bounds of the windows leave no more than what is reserved, and the
// account has no long limits. If they leave more, and calls get none of it only because of a debt, the front stays shut.
// Such a debt was not paid because the proof is over (Segment.Stale). Once there is a new proof it is paid, and calls get
// the rest; but a new proof does not change the windows, so that a front which refuses would go on refusing. The account's
// lock is held. Its holder has just refused a call, by the segment that runs, and has had others asked if that was due. With
// quiet the refusals are added to the sum over all keys only when the front is shut, not one by one (partQuiet). At most
// one key's front is quiet at a time.
func (f *Front) Refuse(a *Account, quiet bool) {
	if a.leftOfShares() <= a.reserved && len(a.budgets) == 0 {
		p := partSpent
		if quiet {
			p |= partQuiet
		}
		f.set(a, p)
	}
}

// set opens the front, or has it refuse, and returns true. One that is not shut stays as it is, and set returns false:
// what calls took of it is not booked yet. What backs the front stays.
func (f *Front) set(a *Account, p Part) bool {
	if f.state.Load()&partModes != 0 {
		return false
	}
	if a.trade != nil {
		p |= partTrades
	}
	if f.windows.Load() != a.windows { // before the state: a call that reads that then sees these windows or later ones
		f.windows.Store(a.windows)
	}
	f.state.Or(uint64(p)) // all but what backs the front is 0 while it is shut
	return true
}

// Shut shuts the front, and books in the account how many permits calls have taken since it was opened, or
// since More last booked them. Where permits can be borrowed, it also books how many they were refused. It returns both
// numbers. taken is less than 0 if calls have given back more than they have taken. The account also notes whether calls
// crowded on a front that refused (Account.RefusedAtOnce). Whoever takes the account's lock to look at the account calls Shut
// first.
func (f *Front) Shut(a *Account) (taken, refused int64) {
	switch p := Part(f.state.And(MostOut << partBacks)); { // what backs the front stays: that is the gate's
	case p&partOpen != 0:
		taken = int64(a.laid) - p.count()
		a.Charge(taken)
	case p&partSpent != 0:
		a.atOnce = a.atOnce || p&partAtOnce != 0
		if refused = p.refused(); refused > 0 && a.windows.Lending.Borrows {
			a.Refused(refused, queue.Default, false)
		}
	}
	return taken, refused
}
