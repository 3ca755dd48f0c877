package window

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// long counts the permits of an account under one long limit. They are taken from the window's total in
// etcd before they are issued, so what was taken bounds them, and no share does. Of a Whole limit nothing is
// taken: this instance alone may issue all of it. Where a limit counts by parts of time (sliding.go, inflight.go) its
// window, from Start to End, is the part that runs.
type long struct {
	protocol.Budget
	// purse has what was taken. Of a Whole limit purse.Taken is how many permits may be issued in the window: see whole.
	// While etcd is asked only Restored and late change it: fund then replaces it by the purse of the answer.
	purse escrow.Purse
	// used is the number of permits issued in the window while binds was true, less those that came back; of a Whole limit
	// that became another one, also those issued before. Of a limit in flight it is the number of calls under way that began
	// in the part that runs.
	used int64
	// binds says that the newest view has the limit. A limit that the view lacks is kept until the instant that
	// long.known returns, in case it comes back.
	binds bool
	state longState
	low   int64 // with fewer permits in hand more are wanted
	need  int64 // permits that the largest call that lacked some wants, with those reserved; 0 if none lacked any
	// away says that the latest exchange with etcd failed: no answer, or an error. One that succeeded and decided nothing
	// (KeyUse.Away with Answered) does not set it.
	away bool
	// forgotten says that etcd was restored while it was asked: the permits that its answer brings are dropped, the total
	// that it tells is kept.
	forgotten bool
	// again: before this monotonic instant etcd is not asked for more, since it had too little or decided nothing. What goes
	// back waits for it only while more is wanted: then it goes with the next taking (returns).
	again  int64
	funded int64 // monotonic instant at which permits were last taken; 0 for never
	// before is what used was at funded, so used-before permits were issued since. used begins at 0 in each part: so
	// long.next subtracts the old part's used from before, which may then be below 0.
	before int64
	// active is the monotonic instant of the latest call that wanted or had permits; 0 for never. A call that waits, or has
	// permits reserved, counts at each look.
	active int64
	keep   int64 // permits that the latest call wanted, or that the calls since the last look had
	// patient is how long after active keep stays in hand, in nanoseconds: twice the longest pause between two calls so far.
	patient int64
	// since is the first epoch (Account.epoch) whose permits are in hand again if they come back: since then the limit has
	// bound in the window, and etcd was not restored.
	since uint32
	// read is the monotonic instant of etcd's latest answer, 0 before the first.
	read int64
	// stated is what the provider has said of how many permits are left. Of a Whole limit it bounds what is issued here
	// (whole); otherwise it is what etcd has not been told yet.
	stated escrow.Stated
	// ended are earlier parts of which something is in hand, asked for, or under way: calls, or permits on their way back
	// (endedIn). Beside them are those that regain adds, in no order. What is in hand of them goes back to etcd.
	ended []ended
	// back are permits that are on their way back to etcd, and can be taken again once it has answered.
	back int64
	// wanted has the asks for a limit in flight: what others lack, what goes back to etcd for them, and what this instance
	// asks for.
	wanted wanted
}

// longState says what a long limit waits for.
type longState uint8

const (
	atRest    longState = iota // nothing
	wanting                    // TakeUse: to ask for more, to tell what the provider stated, or to move permits of earlier parts
	handedOut                  // Fund, with etcd's answer
)

const (
	// spentAgain is the pause after etcd had no permits left: until then it is not asked again. If it had some, but fewer than a
	// call wants, it is asked within that time only for calls that want no more than is left (tooMany). The pause of a limit in
	// flight is inFlightAgain (tooFew).
	spentAgain = int64(10 * time.Second)
	// longRest: permits in hand that nobody uses go back to etcd after this time, unless others ask for them before (in
	// flight) or the instance ends. Those of the latest call stay for patient, if that is longer, so that a rare caller
	// still finds them. Of a limit that counts by parts all go back when the part ends, if that is sooner.
	longRest = int64(16 * time.Second)
	// longRead is how long after etcd's latest answer (long.read) a provider's total is read again.
	longRead = int64(30 * time.Second)
	// LookUsed is the time between two looks at the long limits while permits are used, and LookAtRest the same
	// while none are.
	LookUsed, LookAtRest = 100 * time.Millisecond, time.Second
	// AwayAgain is the pause after an exchange that failed, and after a taking of the running window that decided nothing
	// (KeyUse.Away), but not where that was so because others wrote first each time (Outrun). When the provider has stated
	// something, no pause before etcd is told is longer than this (tells).
	AwayAgain = time.Second
)

// hand returns how many permits are in hand: taken, not issued, and not owed to others (wanted.owed). It is negative if a
// Whole limit was lowered below what was issued.
func (b *long) hand() int64 { return b.purse.Taken - b.used - b.wanted.owed }

func newLong(b protocol.Budget) long { return long{Budget: b, purse: escrow.Purse{Part: b.Part()}} }

// takesBack reports whether permits that were issued in an epoch are in hand again if they come back. Epochs wrap around.
func (b *long) takesBack(epoch uint64) bool { return int32(uint32(epoch)-b.since) >= 0 }

// holds reports whether a new long in place of this one would lose something: what the provider has stated and etcd does not
// know; permits in hand or to be returned; those of an earlier part for which etcd was asked and has not answered
// (ended.asked); or, of a Whole limit, the count, which is nowhere else: if that limit counts by parts, it always holds. What
// etcd's next answer may bring back of unanswered writes (Purse.Unanswered) may be lost.
func (b *long) holds() bool {
	if b.Whole {
		return b.stated.Until != 0 || b.used > 0 || b.ByParts()
	}
	return b.stated.Until != 0 || b.hand() > 0 || b.toReturn() > 0 || slices.ContainsFunc(b.ended, func(e ended) bool { return e.asked })
}

// left returns how many permits can still be taken, by the newest total known: 0 where they are withheld or the limit is
// Whole, and less than 0 before etcd's first answer.
func (b *long) left() int64 {
	if b.Whole {
		return 0
	}
	return b.purse.Left(b.Permits)
}

// couldHave reports whether this instance may get n permits at once, from its hand and etcd together, as far as is known of
// the total.
func (b *long) couldHave(n int64) bool {
	return n <= b.hand() || n <= b.Permits && (b.left() < 0 || n <= b.reach())
}

// reach returns how many permits are in hand and left in etcd together, with those on their way back to it. Before etcd's
// first answer it says nothing: see left.
func (b *long) reach() int64 { return b.hand() + b.left() + b.returning() }

// mayGet reports whether etcd may have permits of the limit for this instance, as far as is known of the total. Of a Whole
// limit it has none.
func (b *long) mayGet() bool { return b.left() < 0 || b.left()+b.returning() > 0 }

// returning returns how many permits are on their way back to etcd, or go back with the next taking, and can then be taken
// again. It is 0 of a Whole limit, while etcd hands out nothing, and of a limit in flight: what goes back of that may be for
// others that ask for it.
func (b *long) returning() int64 {
	if b.InFlight || b.Whole || b.purse.Withheld() != "" {
		return 0
	}
	return b.back + b.toReturn()
}

// adoptBudgets moves the budgets to the windows that run. It returns how many calls in flight have had all the time that a
// call may take, and count no more from now on, though nobody has said that they ended. Calls that are dropped sooner are not
// among them, since they may end in time: those of a limit that has become another one (protocol.Other), and those that a
// restore drops (Restored, endedIn).
func (a *Account) adoptBudgets(all []protocol.Budget) (unended int64) {
	for i := range a.budgets {
		b := &a.budgets[i]
		b.binds = b.binds && slices.ContainsFunc(all, func(o protocol.Budget) bool { return o.Window == b.Window })
	}
	a.budgets = slices.DeleteFunc(a.budgets, func(b long) bool {
		over := !b.binds && b.known() <= a.windows.Over
		if over && b.InFlight {
			unended += b.underWay()
		}
		return over
	})
	for _, now := range all {
		i := slices.IndexFunc(a.budgets, func(b long) bool { return b.Window == now.Window })
		if i < 0 {
			i = len(a.budgets)
			a.budgets = append(a.budgets, newLong(now))
		}
		b := &a.budgets[i]
		order := now.Order(&b.Budget)
		other := order == protocol.Other
		next := order == protocol.Later || other
		// used has nothing of earlier windows (but see long.next for a Whole limit), nor what was issued while the limit did not
		// bind. Refund cannot tell such permits from those in used, so a new epoch keeps it from taking off any.
		if !b.binds || next {
			a.epoch++
			b.since = a.epoch
		}
		if !b.binds && b.state == wanting { // nobody has asked etcd while it did not bind: so the next want is news again
			b.state, b.need = atRest, 0
		}
		b.binds = true
		switch {
		case next:
			calls, entered := b.underWay(), b.next(now, other)
			entered.binds, entered.since, entered.active, entered.patient, entered.keep = true, b.since, b.active, b.patient, b.keep
			if b.InFlight && !other && !b.forgotten {
				unended += calls - entered.underWay()
			}
			if b.stated.Until != 0 && entered.stated.Until != 0 && !entered.Whole {
				// What the provider has stated to this instance (b.stated) is in no total yet, so etcd is told at once. A rest
				// that restAt has from the old window's total goes into the new window's with the next taking.
				entered.state = wanting
			}
			*b = entered
		case order == protocol.Earlier:
			a.early = true
		default:
			if now.Permits > b.Permits {
				b.again = 0
			}
			b.Limit = now.Limit
			// The same part may begin at another instant, under another guard. Then Start and End stay, since grants of its
			// calls name them. Calls that begin after End have less than the hold, by as much as the part was moved.
			if b.Start == now.Start {
				b.End = now.End
			}
		}
		if now.Whole && order != protocol.Earlier {
			b.Whole = true
			b.purse.Taken = b.whole(a.windows.Over)
		}
	}
	return unended
}

// binding goes over the budgets that bind.
func (a *Account) binding(yield func(*long) bool) {
	for i := range a.budgets {
		if b := &a.budgets[i]; b.binds && !yield(b) {
			return
		}
	}
}

// inHand returns the least that a long limit that binds has in hand; Unbounded if none binds. It may be below 0: see hand.
func (a *Account) inHand() int64 {
	least := shape.Unbounded
	for b := range a.binding {
		least = min(least, b.hand())
	}
	return least
}

// SpentUntil returns in end the corrected wall time by which every long limit that cannot give n permits now has more again;
// 0 if all may give them. Limits in flight do not count in end, since nobody knows when their calls end. lacks reports
// whether some long limit, in flight or not, has fewer than n in hand that are not reserved, and etcd may have more, so that
// it has to be asked first. Neither looks at the debt; end does not look at what is reserved.
func (a *Account) SpentUntil(n int64) (end int64, lacks bool) {
	for b := range a.binding {
		lacks = lacks || b.hand()-a.reserved < n && b.mayGet()
		end = max(end, b.lacksUntil(n))
	}
	return end, lacks
}

// Fetches is SpentUntil for a call for n permits of a key, whose debt is paid first. others is how many permits the calls in
// the key's line want; this call may be among them. fetches reports whether the call only waits for etcd's answer. That is so
// if end is 0; if some long limit has, beside what is reserved and owed, too few in hand for all these calls, while etcd may
// have more of it and the short limits allow more than it has in hand; and if the short limits allow n beside what is
// reserved and owed.
func (a *Account) Fetches(n, others int64) (end int64, fetches bool) {
	end, _ = a.SpentUntil(queue.Sum(n, a.debt))
	if len(a.budgets) == 0 || end != 0 {
		return end, false
	}
	shares, gone := a.leftOfShares(), queue.Sum(a.reserved, a.debt)
	for b := range a.binding {
		hand := b.hand()
		fetches = fetches || hand-gone < queue.Sum(n, others) && shares > hand && b.mayGet()
	}
	return 0, fetches && shares-gone >= n
}

// Wants notes a call that wants n permits and has not got them. What is reserved counts as wanted too: once what
// was in hand has lapsed (Lapses), it has to be taken again. With n = 0 Wants is for that alone. news reports whether
// TakeUse is to be called: if more is wanted of some limit of which nothing was wanted before, or if a call lacks permits
// now of a limit of which more was wanted only because few are in hand.
func (a *Account) Wants(n, now int64) (news bool) {
	return len(a.budgets) > 0 && a.wants(n, 0, 0, now)
}

// Had notes that a call has had n permits. news means the same as for Wants: after this call few may be in hand.
func (a *Account) Had(n, now int64) (news bool) { return len(a.budgets) > 0 && a.wants(0, n, 0, now) }

// wants is Wants and Had in one. taken is how many of the permits in hand callers have taken that are not booked yet.
func (a *Account) wants(n, had, taken, now int64) (news bool) {
	wanted := queue.Sum(n, a.reserved)
	for b := range a.binding {
		if b.Whole {
			continue
		}
		b.calls(max(n, had), now)
		hand := b.hand() - taken
		lacks := wanted > 0 && wanted > hand && wanted <= b.Permits && !b.tooMany(wanted+taken, now, now+a.windows.Offset)
		switch {
		case b.state == handedOut: // etcd is asked: once it answers those that wait want theirs again
			continue
		case now < b.again && !b.away: // while etcd is away a want is noted, and TakeUse waits until again
			continue
		case !lacks && hand >= b.low:
			continue
		}
		news = news || b.state == atRest || lacks && b.need == 0
		if b.state = wanting; lacks {
			b.need = max(b.need, wanted)
		}
	}
	return news
}

// tooMany reports whether etcd is not to be asked on behalf of a call for n permits: it has told within spentAgain what is
// left, and with what is in hand and on its way back that is fewer than n. If nothing is left, again keeps etcd from being
// asked. wall is the same instant as now in corrected wall time.
func (b *long) tooMany(n, now, wall int64) bool {
	return b.left() > 0 && now-b.read < spentAgain && b.lacksUntil(n) > wall
}

// calls notes that calls want or have had n permits; 0 if it is not known how many.
func (b *long) calls(n, now int64) {
	if b.active != 0 {
		b.patient = max(b.patient, 2*(now-b.active))
	}
	if b.active = now; n > 0 {
		b.keep = n
	}
}

// Withheld reports whether n permits cannot be had because a long limit withholds the rest, as after a restore: until its
// window ends or a later part begins (Purse.Resumes), or an operator gives a count. taken is as for wants.
func (a *Account) Withheld(n, taken int64) bool {
	for b := range a.binding {
		if !b.Whole && b.hand()-a.reserved-taken < n && b.purse.Withheld() != "" {
			return true
		}
	}
	return false
}

// MostOfBudgets returns the most permits that the long limits allow one call, less those that are reserved;
// Unbounded if no long limit binds. It may be 0 or less.
func (a *Account) MostOfBudgets() int64 {
	least := shape.Unbounded
	for b := range a.binding {
		least = min(least, b.Permits-a.reserved)
	}
	return least
}

// WantsMore reports whether TakeUse will hand out uses, now or later.
func (a *Account) WantsMore() bool {
	return slices.ContainsFunc(a.budgets, func(b long) bool { return b.binds && b.state == wanting })
}

// AsksAtOnce reports whether TakeUse, called at the monotonic instant now, hands out a use of a limit of which a call lacks
// permits (need), or of a limit in flight, whatever that use is for.
func (a *Account) AsksAtOnce(now int64) bool {
	return slices.ContainsFunc(a.budgets, func(b long) bool {
		return b.binds && b.state == wanting && b.again <= now && (b.need > 0 || b.InFlight)
	})
}

// lacksUntil returns the corrected wall time at which the limit has more again, if it cannot give n permits at present: see
// over. It is 0 if it may give them, and of a limit in flight, since nobody knows when calls end.
func (b *long) lacksUntil(n int64) int64 {
	if b.InFlight || b.couldHave(n) {
		return 0
	}
	return b.over(n)
}

// use returns what is told of the limit. n is for Over alone. Of a Whole limit Taken is what may be issued, and Spent is
// always set: etcd has nothing of it. Of a limit in flight Used has the calls of all parts.
func (b *long) use(n int64) protocol.BudgetUse {
	left, stated, used, places := b.left(), b.heeds(), b.used, int64(0)
	if b.InFlight {
		used, places = b.underWay(), max(0, b.used+b.hand())
	}
	return protocol.BudgetUse{
		Budget:   b.Budget,
		Places:   places,
		Taken:    used + b.hand(),
		Used:     used,
		Left:     left,
		Spent:    left == 0,
		Withheld: b.purse.Withheld(),
		Resumes:  b.purse.Resumes(&b.Budget),
		Away:     b.away,
		Stated:   stated.Until,
		Named:    stated.Of != 0,
		Over:     b.lacksUntil(n),
	}
}

// TakeUse returns what to ask etcd for: a use of each long limit that wants more and whose pause (again) is over, at most
// `most` uses. The others go on wanting. name is the key's. Fund takes each use back. Until then no other of the same window,
// or part of time, is handed out.
func (a *Account) TakeUse(name string, most int, now int64) []escrow.KeyUse {
	return a.takeUse(name, most, 0, now)
}

// takeUse is TakeUse. taken is as for wants.
func (a *Account) takeUse(name string, most int, taken, now int64) (all []escrow.KeyUse) {
	for b := range a.binding {
		if b.state != wanting || now < b.again || len(all) == most {
			continue
		}
		u, share := escrow.Use{Used: b.used + taken, Need: b.need, Rate: b.rate(taken, now), Stated: b.stated}, a.perSecond(b.Permits)
		if b.InFlight {
			u.By, u.Has, share = a.by(), b.has(), a.handOf(b)
		}
		back := b.nextReturn() // after has: Use.Has counts what goes back too, and Purse.Next takes it off
		all = append(all, b.handOut(escrow.KeyUse{Key: name, Use: u, Share: share, Back: back}))
	}
	return all
}

// GiveBack returns at most `most` uses that give permits back to etcd: first what is left of earlier parts or owed to others
// (returns); else, in windows that still count (Budget.Until), what is in hand and not reserved (spare):
//
//   - all, if the instance ends, or the limit is in flight and binds no more;
//   - what others lack, if it is in flight and binds;
//   - if nobody used or wanted any for longRest, all but what the next call may want (keep), and after patient all.
//
// Fund takes each use back.
func (a *Account) GiveBack(name string, most int, now int64, ends bool) (all []escrow.KeyUse) {
	for i := range a.budgets {
		b := &a.budgets[i]
		if len(all) < most && b.returns(ends) {
			all = append(all, b.handOut(escrow.KeyUse{Key: name, Back: b.nextReturn(), Use: escrow.Use{Look: true}}))
			continue
		}
		n := b.spare(now, ends) - a.reserved
		if n <= 0 || b.Until() <= now+a.windows.Offset || len(all) == most {
			continue
		}
		b.purse.Taken -= n
		b.low = max(0, b.hand()-a.reserved) // as soon as one of those that are kept is used, etcd is asked for more
		all = append(all, b.handOut(escrow.KeyUse{Key: name, Back: escrow.Back{N: n, Of: b.purse.Part}, Use: escrow.Use{Look: b.ByParts()}}))
	}
	return all
}

// spare returns how many permits in hand nobody here needs, those reserved among them; 0 or less for none.
func (b *long) spare(now int64, ends bool) int64 {
	idle := now - max(b.active, b.funded)
	switch {
	case b.state == handedOut || b.Whole:
		return 0
	case ends || b.InFlight && !b.binds:
		return b.hand()
	case b.wanted.n > 0 && now < b.wanted.othersUntil:
		return min(b.hand(), b.othersLack(now))
	case b.state == wanting && b.binds || idle < longRest:
		return 0
	case idle < b.patient:
		return b.hand() - b.keep
	}
	return b.hand()
}

func (b *long) handOut(u escrow.KeyUse) escrow.KeyUse {
	b.state = handedOut
	b.back += u.Back.N
	u.Budget, u.Purse = b.Budget, b.purse
	return u
}

// Restored drops the permits in hand: they were taken in another store than the one that answers now, or in
// this one before it was restored. So permits that are reserved are gone too: Confirm refuses them, unless as many have
// been taken again by then. Whole limits stay as they are. Of a limit in flight the calls of earlier parts are forgotten.
// Those of the running part still count, and their permits are in hand again when they end. But if etcd was being asked, its
// answer drops the permits of those that have ended by then (fund); and if the part ends before the answer, all of its calls
// are forgotten (endedIn).
func (a *Account) Restored() {
	a.epoch++ // a permit that was issued before the restore and is given back later is not in hand again
	for i := range a.budgets {
		if b := &a.budgets[i]; !b.Whole {
			b.since = a.epoch
			b.purse.Restored(b.used)
			b.ended, b.back, b.wanted = nil, 0, wanted{}
			b.forgotten = b.state == handedOut
			b.low, b.again = 0, 0
		}
	}
}

// rate returns how many permits a second were used since some were taken last, with the permits that callers have taken and
// that are not booked yet. It is 0 before permits are taken first, and of a limit in flight.
func (b *long) rate(taken, now int64) int64 {
	if b.funded == 0 || b.InFlight {
		return 0
	}
	return int64(math.Ceil(float64(b.used+taken-b.before) / max(0.1, time.Duration(now-b.funded).Seconds())))
}

// perSecond returns Rule.Share for a long limit of so many permits: how many permits the short limits let this instance
// issue in a second. It is negative if these are as many as limit or more, or if there are no short limits.
func (a *Account) perSecond(limit int64) int64 {
	least := shape.Unbounded
	for s := range a.bounded {
		least = min(least, plans.InASecond(s.Bound, s.Window.Length))
	}
	if least >= limit {
		return -1
	}
	return least
}

// Fund takes back a use with etcd's answer.
func (a *Account) Fund(u escrow.KeyUse, now int64) {
	for i := range a.budgets {
		b := &a.budgets[i]
		if b.Window != u.Window {
			continue
		}
		b.answered(&u)
		heard := b.ByParts() && u.ByParts() && b.Start > u.Start && b.late(&u, now)
		if b.Start == u.Start && b.state == handedOut {
			b.fund(u, now)
			heard = !u.Away
			if until := b.heeds().Until; until != 0 { // the provider's reset: etcd is asked then, since more is left
				b.again = min(b.again, until-a.windows.Offset)
			}
		}
		if b.InFlight && heard { // hear ignores totals that are not newer than this one: so the asks in this one are noted here
			total := b.purse.Total()
			b.noteAsks(&total, now, now+a.windows.Offset, a.by())
		}
	}
}

// exchanged notes how an exchange with etcd went: one of the running window, or of an earlier part of the same limit.
func (b *long) exchanged(u *escrow.KeyUse, now int64) {
	if b.away = u.Away && !u.Answered; u.Away {
		return
	}
	if b.read = now; b.stated == u.Use.Stated {
		b.stated = escrow.Stated{}
	}
}

// fund takes the answer to the question of the running window.
func (b *long) fund(u escrow.KeyUse, now int64) {
	if b.forgotten {
		u.Purse.Restored(b.used)
		b.forgotten = false
	}
	// u.Purse.Taken may be below b.used if another store answered: the purse began anew then with Use.Used (taking.goesOn).
	// That is older than b.used, and 0 in a give-back.
	u.Purse.Taken = max(u.Purse.Taken, b.used)
	had := b.purse.Taken
	b.state, b.purse, b.back = atRest, u.Purse, 0
	b.wanted.owed = min(b.wanted.owed, b.purse.Taken-b.used) // what was dropped is not owed any more
	b.exchanged(&u, now)
	b.regain()
	more := b.purse.Taken > had
	raised := u.Permits < b.Permits                        // since etcd was asked
	takes := !u.Use.Look && (u.Back.N == 0 || b.ByParts()) // else it only reads, or gives back
	if takes && (u.Away || raised) {
		b.state = wanting // nothing was decided, or by a lower limit
	}
	switch {
	case u.Outrun && takes: // others wrote first: the coordinator's pause between takings is enough
	case u.Away && (takes || b.away):
		b.again = now + int64(AwayAgain)
	case b.InFlight && !more && b.toReturn() > 0: // what an earlier part has goes back with the next taking: at once
		b.state, b.again = wanting, 0
	case !takes, raised:
		if b.InFlight && b.left() > 0 {
			b.again = 0 // whoever waits here has etcd asked at once, as the others do that hear of what is left
		}
	case more:
		b.funded, b.before, b.need, b.again, b.wanted.asked = now, b.used, 0, 0, 0
		b.low = (b.hand() + 1) / 2
	case b.left() > 0: // etcd gave none though some are left: see escrow.Rule
		if b.InFlight && b.need > b.hand() {
			b.again = b.tooFew(now)
		}
		b.need, b.low = 0, min(b.low, b.hand())
	default: // nothing is left, or all is withheld: etcd is not asked until b.again, and then for who wants some after that
		b.again = b.tooFew(now)
		b.need, b.low = 0, 0
	}
	if b.stated.Until != 0 {
		b.tells(now)
	}
	if b.state == atRest { // those that wait want theirs again
		b.need, b.wanted.tried = 0, 0
	}
	b.catchUp(now)
}
