package escrow

import (
	"cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// A Purse has what an instance has taken of one window, of the provider or of one of its keys, and what
// it knows of that window's total in etcd. etcd has only the total, and no entry for each instance: a
// provider may have many keys, such as one for each of its users. So an instance counts what etcd has
// acknowledged, and nothing else. A transaction writes the total, on the condition that its revision is
// the one known. Unless etcd is restored, or an operator corrects the total, at all times
//
//	total.Out >= the permits that all instances have taken, by their purses
//
// since a purse grows after such a transaction, and shrinks before one that gives back. Where no answer
// comes, or where a give-back is refused that may have been committed before (see Refused), it may be that
// nobody can issue the permits until the window ends or, where a total counts by parts of time, until their part
// counts no more. docs/proof/protocol.md, section 14.
//
// The zero Purse has taken nothing. It is not safe for concurrent use.
type Purse struct {
	// Taken is how many permits the instance has taken and not given back, issued or not. Committed
	// raises it. Its owner, a window.Account, lowers it before a give-back is sent.
	Taken int64
	// Part is the part of time that Taken is of, where the limit counts by parts; else it is zero. It is set
	// before the purse is used.
	Part protocol.Part
	// total is the newest state known of the total, and revision that of its entry in etcd; 0 if there is
	// none, or nothing is known. Read, Refused, Committed and Hear set both. Keep and Free change the total
	// alone: they are for a limit that no other instance has, of which etcd has no total. Forget drops from the total what
	// the provider has stated, and changes nothing else.
	total    Total
	revision int64
	verdict  *Verdict // what the mark said of the window when etcd answered last; nil if it never did
	// restored says that the session has noticed a restore, and etcd has not answered since: the total is of before.
	restored bool
	lost     loss
	// unsettled has the writes that etcd has not answered, and what was decided of them since; nil if there is none.
	unsettled *unsettled
}

// loss says whether the store went back: it had an older total than was known, or none. Unless an operator's word covers
// that (Purse.lacks), the next total that is written says so to all, and hands out nothing more or, where it counts by
// parts, nothing before From.
type loss uint8

const (
	noLoss loss = iota
	// noticed: the session has noticed the restore too, before or after etcd showed the older total. So the mark is
	// renewed, and an operator's word in it is said after the restore.
	noticed
	// unnoticed: the session has not noticed the restore. Then the mark, and an operator's word in it, may have come with
	// the backup.
	unnoticed
)

// Revision returns the revision of the total's entry in etcd, as far as is known; 0 if there is none.
func (p *Purse) Revision() int64 { return p.revision }

// Of reports whether the store that answers now, by its verdict v, is the one that answered last: the same cluster
// answers, and its mark voids no totals that it did not void then (Mark.Void). It is true if none has answered yet. If it
// is false, the permits in hand count no more: the caller goes on with a new Purse, whose Taken is what was issued. A store
// that was put back under the same cluster ID passes as the same one until an operator, or an instance that notices it,
// writes a mark that voids its totals. Until then Read finds it out if its total is older than the known one, or gone.
func (p *Purse) Of(v *Verdict) bool {
	return p.verdict == nil || p.verdict.Cluster == v.Cluster && p.verdict.Void >= v.Void
}

// Read takes the total's value and revision as the store of the verdict v has answered them; revision 0
// if there is no total. The caller has made sure that Of(v) is true.
func (p *Purse) Read(value []byte, revision int64, v *Verdict) {
	if revision < p.revision { // the numbers of writes begin again
		p.unsettled = nil
	}
	switch {
	case revision == 0 && v.before != 0:
		p.lost = noLoss // no total need tell of the loss: by this mark no instance writes one of the window, and an operator's is valid
	case revision >= p.revision, revision == 0 && p.ended():
	case p.restored:
		p.lost = max(p.lost, noticed)
	default:
		p.lost = unnoticed
	}
	p.total, p.revision, p.verdict, p.restored = Total{}, revision, v, false
	if revision != 0 {
		p.total = ReadTotal(value, v.Cluster)
	}
	// A total that withholds for good has told all instances already. One that withholds until From may do so for too
	// short a time: the lost store may have handed out permits of later parts.
	if p.total.Withheld != "" && p.total.From == 0 {
		p.lost = noLoss
	}
	p.settle()
}

// Restored notes that the session has noticed a restore: the permits in hand count no more, so Taken is from now on what
// was issued. What is known of the total stays, since etcd may know less. The mark is renewed before etcd is asked again
// (MarkAt.Renewed): so an operator's word in it is said after the restore, and covers what was lost.
func (p *Purse) Restored(issued int64) {
	p.Taken, p.restored, p.lost, p.unsettled = issued, true, min(p.lost, noticed), nil
}

// lacks reports whether the store lacks permits that it has handed out, and no operator's word in the mark covers that.
func (p *Purse) lacks(v *Verdict) bool {
	return p.lost == unnoticed || p.lost == noticed && v.Told == 0
}

// ended reports whether the known total counts by parts, all of them are too old to count by any clock, and it
// withholds nothing any more. Its lease may have ended then, so that it is no loss if etcd does not have it.
func (p *Purse) ended() bool {
	return p.Part.ByParts() && p.total.Withheld != unreadable && p.Part.Number >= max(p.total.newest()+p.Part.Counted+slack, p.total.From)
}

// Refused takes the total that etcd has in place of next, after it has answered that the condition of next's
// transaction did not hold. Next has returned next. The answer is no proof that next was not written: etcd's client may
// send a transaction again when no answer comes, and the condition of the copy fails because the first one was
// committed.
//
// never reports whether it is proved that no copy of next was committed, nor will be:
//
//   - If next has a name, and the total found still tells the name of the write with the number next.Writes
//     (Total.Recent), it is proved if that is another name, or none.
//   - Otherwise it is proved if Writes shows that the total found is the only one that was written since the total
//     known before, and its Out differs from that of next. If Out is the same, the total found may be next
//     itself; if several were written, next may be one of them.
//
// Refused also serves for a plain read, where nothing was sent. Its result then has no meaning.
func (p *Purse) Refused(next Total, value []byte, revision int64, v *Verdict) (never bool) {
	p.Read(value, revision, v)
	if mine, _ := next.named(next.Writes); mine != 0 {
		if there, ok := p.total.named(next.Writes); ok {
			return there != mine
		}
	}
	return p.total.Writes == next.Writes && p.total.Out != next.Out
}

// Withheld returns the reason why etcd hands out nothing more of the window, whatever is left, by the newest total and
// verdict known. It is empty if nothing is withheld, or nothing is known.
func (p *Purse) Withheld() string {
	if p.verdict == nil {
		return ""
	}
	return p.withheld(p.verdict)
}

// withheld is Withheld by the verdict v. A total that an operator has vouched for hands out what is left of it,
// whichever cluster wrote it and whatever it withholds. Any other must be of the cluster that answers.
func (p *Purse) withheld(v *Verdict) string {
	switch {
	case p.revision == 0:
		return v.Lost
	case p.vouched(v):
		return ""
	case p.foreign(v):
		why := otherCluster
		if p.total.Cluster == v.Cluster {
			why = earlierStore
		}
		return cmp.Or(p.total.Withheld, why)
	case p.total.From != 0 && p.Part.Number >= p.total.From:
		return ""
	case p.total.From != 0: // Withheld may be empty: an instance whose clock has reached From clears it when it takes
		return cmp.Or(p.total.Withheld, wentBack)
	}
	return p.total.Withheld
}

// vouched reports whether an operator has vouched for the total (Verdict.Told): it is there, it can be read, and it was
// written before he did.
func (p *Purse) vouched(v *Verdict) bool {
	return p.revision != 0 && p.revision < v.Told && p.total.Withheld != unreadable
}

// foreign reports whether the total that is there counts as that of another store, and no operator has vouched for it: it
// was written in another cluster, or in this one at a revision below Mark.Void: before an instance or an operator wrote
// that the store was restored.
func (p *Purse) foreign(v *Verdict) bool {
	return p.revision != 0 && (p.total.Cluster != v.Cluster || p.revision < v.Void) && !p.vouched(v)
}

// Left returns how many permits of the limit can still be taken, by the newest total known. It is 0 also
// where they are withheld, and -1 if nothing is known.
func (p *Purse) Left(limit int64) int64 {
	if p.verdict == nil {
		return -1
	}
	return p.left(limit, p.verdict)
}

func (p *Purse) left(limit int64, v *Verdict) int64 {
	if p.withheld(v) != "" {
		return 0
	}
	return p.total.left(limit, p.Part) // without a total, nothing is out
}

// Total returns the newest total known; zero if there is none.
func (p *Purse) Total() Total { return p.total }

// Out returns how many of the permits that were handed out count, by the newest total known: all of the window or, where
// the limit counts by parts, those of every part that still counts while Part runs. The permits that the total carries
// count too.
func (p *Purse) Out() int64 { return p.total.out(p.Part) }

// Next decides what to write in place of the newest total known: to take permits as the rule allows or, if
// back.N is above 0, to give so many back, which the caller does not issue any more. Where the limit counts by
// parts, it may give back and take at once. The caller has made sure that Of(v) is true.
//
// It returns the total to write, on the condition that its entry is at Revision, and n: how many permits are
// taken. If none are taken, n is minus how many are given back. If ok is false, next must not be written. If ok is true n
// may be 0: then the total only says something, such as what is withheld, stated, carried or asked for.
func (p *Purse) Next(r Rule, u Use, back Back, v *Verdict) (next Total, n int64, ok bool) {
	next = p.total
	next.Limit, next.Cluster, next.Withheld = r.Limit, v.Cluster, p.withheld(v)
	if next.Writes++; p.Part.ByParts() {
		next.name(r.Nonce)
	}
	news := next.carry(&r, u.By != 0)
	news = next.state(u.Stated, r.Limit, p.Part, r.Now) || news
	switch {
	case p.Part.ByParts() && next.Withheld != unreadable && (p.lacks(v) || p.foreign(v)):
		// From part From on nothing counts that the lost store has handed out, whichever clock decides.
		next.Withheld, next.From = cmp.Or(next.Withheld, wentBack), p.Part.Number+p.Part.Counted+1
		return next, 0, true
	case next.Withheld != "":
		return next, 0, false
	case p.lacks(v):
		next.Withheld = wentBack
		return next, 0, true
	}
	if p.vouched(v) || p.Part.Number >= next.From+slack { // an operator has ended the pause, or it is over by every clock
		next.From = 0
	}
	gave := int64(0)
	if back.N > 0 {
		gave = next.giveBack(back.N, back.Of)
	}
	if back.N == 0 || p.Part.ByParts() {
		left, has := next.left(r.Limit, p.Part), u.Has-gave
		if u.By != 0 {
			if others, _ := next.Asked(u.By, r.Now); others > 0 {
				r.Share = 0 // it keeps one in hand, and no more
			}
			left -= next.leaves(r, u, left, has)
		}
		n = r.more(left, p.Taken-u.Used, u)
		next.add(n, p.Part)
		if u.Look { // it wants none, and takes back what it has asked for
			u.Need = 0
		}
		if u.By != 0 {
			news = next.ask(r, u, u.Need-(p.Taken-u.Used)-n, has+n) || news
		}
	}
	if n == 0 {
		n = -gave
	}
	return next, n, n != 0 || news
}

// Back says what is given back.
type Back struct {
	N  int64         // permits
	Of protocol.Part // the part of time of which they were taken; zero if the limit does not count by parts
}

// Committed notes that etcd has written next at a revision. n is what Next has returned with it. A give-back leaves
// Taken as it is: it was lowered before.
func (p *Purse) Committed(next Total, n, revision int64, v *Verdict) {
	p.Taken += max(0, n)
	p.total, p.revision, p.verdict, p.restored, p.lost = next, revision, v, false, noLoss
	p.settle()
}

// KeyUse is what an instance wants of etcd for one window of a long limit, of the provider or of a key: to take
// permits, to give some back, or only to read the total. feed.Sink.Uses hands it to package coordinator, which asks
// etcd and returns it by Fund. Until then the sink hands out no other KeyUse of the same window.
type KeyUse struct {
	Key             string // empty for the provider's own limit
	protocol.Budget        // the limit and the window
	Purse           Purse  // as the sink knows it; on the way back, with what etcd has answered
	Back            Back   // permits to give back, which Purse.Taken counts no more; the same on the way back
	Use             Use    // how the permits are used, and how many are wanted
	Share           int64  // see Rule.Share; of a limit in flight, how many permits are to be kept in hand
	// Away is set on the way back if nothing was decided: etcd did not answer or refused, the view was in doubt, the
	// policy is another by now, or others wrote first at every try. If Away is set without Unsent, the permits of Back may
	// be lost: nobody can issue them until they count no more, or Purse.Regained has them. If both are set, the instance has
	// them again: etcd was not asked to take them back, or Purse.Refused has proved that no try was committed. They may also
	// be lost where Away is false: if Purse.Refused has proved nothing, or they are of another store than the one that
	// answers.
	// Answered is set beside Away if etcd has answered all that it was asked. Outrun is set beside both if another had
	// written the total before the last try.
	Away, Unsent, Answered, Outrun bool
}
