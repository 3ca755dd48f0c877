package window

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
)

// A provider that counts by itself says with its responses how much is left of a long limit, and when
// it begins to count anew. Others may use the same account. What it says is written into the window's
// total in etcd, so that the whole fleet heeds it: see escrow.Stated.

// statedSlack: a limit may be the one meant if the provider's reset is at most its window and this ahead: clocks differ.
const statedSlack = int64(time.Minute)

// States notes what the provider has said of a long limit: left permits are left of it until an instant in corrected wall
// time. limit is the provider's own number, 0 if it named none: meant is our limit of as many permits or, if there is none,
// the shortest whose window may last until then; never one in flight. now is monotonic. news: TakeUse is to be called for
// it. It is false also where TakeUse is due anyway, or Fund will see to it.
func (a *Account) States(limit, left, until, now int64) (news bool) {
	s, wall := escrow.Stated{Left: left, Until: until, Of: limit}, now+a.windows.Offset
	var of *long
	for b := range a.binding {
		switch {
		case b.InFlight: // it counts calls that are under way
		case b.Permits == limit:
			return b.states(s, now, wall)
		case int64(b.Window)+statedSlack >= until-wall && (of == nil || b.Window < of.Window):
			of = b
		}
	}
	return of != nil && of.states(s, now, wall)
}

func (b *long) states(s escrow.Stated, now, wall int64) (news bool) {
	s.Limit = b.Permits
	if b.Whole {
		s.At = b.used
	}
	// news: nothing that is noted still counts; or it is lower than that, of a Whole limit by what it allows in all (At is
	// how many were used then, and else 0); or it Renews it.
	news = b.stated.Until <= wall || s.Left+s.At < b.stated.Rest(b.Permits)+b.stated.At || s.Renews(b.stated, b.Permits)
	switch {
	case s.Until <= wall || !news:
		return false
	case b.Whole:
		b.stated = s
		b.purse.Taken = b.whole(wall)
		return false
	case !b.purse.Heeds(s, b.Permits):
		return false
	}
	b.stated, news = s, b.state == atRest
	if b.state != handedOut { // else Fund has it told, if the use that is out does not
		b.tells(now)
	}
	return news
}

// tells has TakeUse tell etcd what the provider has stated: within AwayAgain, also if etcd has just had none left.
func (b *long) tells(now int64) {
	b.state, b.again = wanting, min(b.again, now+int64(AwayAgain))
}

// restAt returns what the provider has stated that still holds in our window that begins at start, since the provider's may
// end later. Left is less by what is known to be handed out since; At is 0, since nothing is handed out yet in the new window.
func (b *long) restAt(start int64) (s escrow.Stated) {
	switch total := b.purse.Total(); {
	case b.Whole:
		s = b.stated
		s.Left -= b.used - s.At
	case b.stated.Until > start:
		s = b.stated
	default:
		s = total.Stated
		s.Left -= total.Out - s.At
	}
	if s.Until <= start {
		return escrow.Stated{}
	}
	s.At = 0
	return s
}

// whole returns how many permits of a Whole limit may be issued in the window, those issued included. If what the provider
// stated is over at wall, it is dropped.
func (b *long) whole(wall int64) int64 {
	if b.stated.Until <= wall {
		b.stated = escrow.Stated{}
		return b.limit()
	}
	return max(b.used, min(b.limit(), b.stated.At+b.stated.Rest(b.Permits)))
}

// heeds returns what the provider has stated if the limit has less left by that; else it returns zero.
func (b *long) heeds() (s escrow.Stated) {
	switch {
	case b.Whole && b.stated.Until != 0 && b.purse.Taken < b.limit():
		return b.stated
	case !b.Whole && b.purse.Binds(b.Permits):
		return b.purse.Total().Stated
	}
	return s
}

// over returns when a limit that cannot serve a call for n permits now has more again: when its window ends, or when what the
// provider stated is over, which may be later (restAt); of a sliding limit when enough parts count no more for n, those in
// hand included.
func (b *long) over(n int64) int64 {
	if until := b.heeds().Until; until != 0 {
		return until
	}
	if b.ByParts() {
		return b.After(max(1, b.purse.Freed(b.missing(n), b.Permits)))
	}
	return b.End
}

// States is Account.States for the provider.
func (g *Gate) States(at clock.Instant, limit, left, until int64) {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.closed {
		return
	}
	g.currentLocked(at)
	g.settleLocked()
	if l := &g.mu.ledger; l.States(limit, left, until, g.mu.last.Mono) {
		g.Wanting()
	}
	g.rebuildLocked(at)
}
