package view

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// A store that was put back to an earlier revision does not say so. It looks like any
// other once it has gone on past the revisions that were known. So after a silence the
// view is in doubt until two things are shown, one after the other:
//
//   - The store still has what this instance wrote itself, or the first write of
//     another's key that the watch told of, says a linearizable read. Neither can
//     have been made twice, so all that was there before it is there still.
//   - A watch that is opened after that tells the same events since then as the
//     one before, up to the position that was reached before the silence.
//
// Then the views that were held are the store's, one by one. To compare the keys
// of one revision, the present or any other, is not enough: what was overwritten
// or deleted in between leaves no trace in them. The other order is not enough
// either: members that have lost their leader, and are about to be replaced, go on
// telling what they know.

// told is what the watch told of one revision: a sum over its events.
type told struct {
	revision int64
	sum      uint64
	first    string // the incarnation whose first write is all that it holds; empty if it is something else
}

// memory is what the watch has told since a write of this instance's own.
type memory struct {
	from int64 // every later revision that changed the view is in all
	own  bool  // from is a write's of this instance
	all  []told
}

// maxTold bounds the revisions that are remembered. Without one of them a doubt is not
// settled before the next own write. Reports are written often, and after each nothing
// older is needed.
const maxTold = 4096

// remember notes what is new.
func (m *memory) remember(x told) {
	if x.revision <= m.from {
		return
	}
	if len(m.all) == maxTold {
		m.from, m.own = m.all[0].revision, false
		m.all = slices.Delete(m.all, 0, 1)
	}
	m.all = append(m.all, x)
}

// wrote forgets what was told up to a write.
func (m *memory) wrote(revision int64) {
	if revision < m.from {
		return // what came between is not known
	}
	m.from, m.own = revision, true
	m.all = slices.DeleteFunc(m.all, func(x told) bool { return x.revision <= revision })
}

// tell sums up the events of one revision.
func tell(keys []Key) (x told) {
	for i := range keys {
		x.revision, x.sum = keys[i].Revision, x.sum+keys[i].sum()
	}
	if len(keys) == 1 && keys[0].First {
		x.first = keys[0].ID
	}
	return x
}

func (k *Key) sum() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %t %s\x00", k.Kind, k.Deleted, k.ID)
	h.Write(k.Value)
	return h.Sum64()
}

// doubt is how far a view in doubt has been confirmed.
type doubt struct {
	kept     bool  // the store has what this instance wrote
	position int64 // up to here its watch has told the same since
	next     int   // index of what it must tell next
	late     int   // how often before there was not time enough to tell it all
	before   int64 // up to here it was told without a doubt, or in one that was checked
	began    int64 // where the telling again began
}

// mostLate is after how many doubts whose events could not be told again within
// the freshness, one after the other, the history begins anew: with a view of very
// many instances, or on a host that has hardly any time, they never might. One after
// which there is a witness from which to go on does not count.
const mostLate = 2

// Wrote notes that a write of this instance's own was committed at a revision. Its
// condition was that the one before was still there (see Reports). It counts for
// nothing while the view is in doubt.
func (t *Tracker) Wrote(revision int64) {
	if t.doubt == nil {
		t.memory.wrote(revision)
	}
}

// Silence must be called before anything that comes from etcd is taken, with the
// instant at which it is. It returns true if the silence before was longer than the
// freshness: since the question of the newest proof, or else of the listing or of the
// check that goes on, or since the doubt began. Then the view is in doubt: answers to
// earlier questions say nothing. Events of the watch are applied as ever, and will have
// to be told again.
//
// The silence is taken by both clocks: while a machine is suspended the monotonic
// one stands still.
func (t *Tracker) Silence(now clock.Instant, freshness int64) bool {
	if max(now.Mono-t.sure.Mono, now.Wall-t.sure.Wall) <= freshness {
		return false
	}
	t.Doubt(now)
	return true
}

// Doubt begins a doubt at the instant now. No proof counts until it is settled.
func (t *Tracker) Doubt(now clock.Instant) {
	last, next := t.doubt, &doubt{before: t.revision}
	if last != nil {
		next.before, next.late = max(last.before, last.position), last.late
	}
	t.sure, t.pending, t.doubt = now, nil, next
	if last == nil || !last.kept {
		return
	}
	if next.late++; t.instances[t.Witness()] > last.began {
		next.late = 0
	}
}

// Doubted reports whether proofs are withheld.
func (t *Tracker) Doubted() bool { return t.doubt != nil }

// Unchecked reports whether a doubt waits for a check.
func (t *Tracker) Unchecked() bool { return t.doubt != nil && !t.doubt.kept }

// Witness returns the newest incarnation that the watch has told of since this
// instance's newest own write; "" if there is none. It was told without a doubt or
// again in one, and its key is as it was written first. Each attempt to register writes
// another value, so that a store which has this one at its revision has all that was
// before.
func (t *Tracker) Witness() string {
	for _, x := range slices.Backward(t.memory.all) {
		if x.first != "" && t.instances[x.first] == x.revision && t.witnesses(x) {
			return x.first
		}
	}
	return ""
}

// Check takes the answer of a linearizable read: kept is the revision of the newest
// write of this instance's own that the store still has (Reports.Kept); 0 without one.
// The key of the Witness is nil if it is not there or was not asked for. If the store
// has them, reopen is true: another watch must be opened at Position, and nothing more
// taken from the one before. gap says that the history has a gap. An answer that was
// asked for before the doubt arose says nothing.
func (t *Tracker) Check(p Probe, revision int64, cluster uint64, kept int64, witness *Key) (reopen, gap bool) {
	if !t.Unchecked() || p.sent.Mono < t.sure.Mono {
		return false, false
	}
	if revision < p.floor || cluster != t.cluster {
		return false, true
	}
	from, next := t.memory.from, 0
	if i := t.attested(witness); i >= 0 {
		from, next = t.memory.all[i].revision, i+1
	} else if !t.memory.own || kept < from {
		return false, true
	}
	if t.doubt.late >= mostLate {
		return false, true
	}
	// Where the watch only said that nothing had happened, it may say otherwise now.
	from = min(from, t.position)
	t.position = max(from, t.revision)
	t.sure = p.sent
	t.doubt = &doubt{kept: true, began: from, next: next, late: t.doubt.late, before: t.doubt.before}
	t.reached(from)
	t.settle()
	return true, false
}

// attested returns the number of what the watch told of a witness, a key's first
// write; -1 if that was something else, or is not remembered.
func (t *Tracker) attested(k *Key) int {
	if k == nil || !k.First {
		return -1
	}
	all := t.memory.all
	i, there := slices.BinarySearchFunc(all, k.Revision, func(x told, r int64) int { return cmp.Compare(x.revision, r) })
	if !there || all[i].first != k.ID || all[i].sum != k.sum() || !t.witnesses(all[i]) {
		return -1
	}
	return i
}

// witnesses reports whether x was told without a doubt, or again in one.
func (t *Tracker) witnesses(x told) bool {
	return t.doubt == nil || x.revision <= t.doubt.before
}

// retelling reports whether the watch has to tell again what it told before.
func (t *Tracker) retelling() bool { return t.doubt != nil && t.doubt.kept }

// again compares what the watch tells with what it told before the doubt. It
// returns false if it is not the same.
func (t *Tracker) again(x told) bool {
	d := t.doubt
	switch {
	case !t.retelling() || x.revision <= d.position:
		return true
	case x.revision > t.position:
		return t.reached(x.revision)
	case d.next == len(t.memory.all) || t.memory.all[d.next] != x:
		return false
	}
	d.next++
	return t.reached(x.revision)
}

// reached notes that the watch has told everything up to a revision, which ends a doubt
// that is cleared up. It returns false if something is missing.
func (t *Tracker) reached(revision int64) bool {
	d := t.doubt
	if !t.retelling() {
		return true
	}
	if all := t.memory.all; d.next < len(all) && all[d.next].revision <= revision {
		return false
	}
	if d.position = max(d.position, min(revision, t.position)); d.position == t.position {
		t.doubt = nil
	}
	return true
}
