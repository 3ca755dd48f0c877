package escrow

import "time"

// Mark is the value of one entry in etcd for each provider. It is about windows whose own entry, the Total, is not in
// etcd. Of such a window either nobody has taken permits, or some were taken before etcd was restored from a backup,
// and the restore has lost the total that counts them. The mark says whether that may be so. It also says whether
// totals of keys that came with a backup count. docs/proof/protocol.md, section 14.
type Mark struct {
	// Cluster is the ID of the etcd cluster that this mark was written in. If another cluster answers, the
	// mark came with a backup.
	Cluster uint64 `json:"cluster,string"`
	// Before is an instant in nanoseconds since the Unix epoch, by the corrected clock of the instance that set it or,
	// if an operator has set it, by the clock of his machine, which is not corrected. Permits of windows that
	// start before it may have been handed out by totals that this store does not have. 0: whoever set the
	// provider's first long limit in this store assumed that no permits of it had been handed out before, and no
	// instance has noticed a restore since.
	Before int64 `json:"before,omitempty"`
	// KeysTold says that an operator has vouched for the totals of keys, since the restore that Before tells of if
	// there was one. Those that were there count as they are. Of a key's window without a total nothing was used.
	// The mark that is written after the next restore clears KeysTold.
	KeysTold bool `json:"keys_told,omitempty"`
	// Void is set once it is known that this store was restored under the cluster ID that it has: by an instance that has
	// followed another store or seen this one go back, or by an operator. Totals whose entries have a lower revision count
	// as those of another cluster. In etcd it is void until another mark replaces this one: then ReadMark returns the
	// revision of this one's own entry.
	Void int64 `json:"void,omitempty"`
}

// void is Mark.Void of a mark whose revision is not known before it is written.
const void = -1

// MarkAt is a mark as it was read or written last. The zero MarkAt is of no cluster: nothing is known.
type MarkAt struct {
	Mark
	Revision int64 // of its entry; 0 if there is none
	// AnsweredBy is the ID of the cluster that the mark was read from. It is not Mark.Cluster if a backup
	// has brought the mark.
	AnsweredBy uint64
	Bad        bool // the entry is there, and cannot be decoded; Mark is then zero
}

// ReadMark returns the mark in an entry with this value and revision, as the cluster with this ID has answered;
// revision 0 if there is no entry.
func ReadMark(value []byte, revision int64, cluster uint64) (m MarkAt) {
	if m.Revision, m.AnsweredBy = revision, cluster; revision != 0 {
		mark, err := Decode[Mark](value)
		if m.Bad = err != nil; !m.Bad {
			if m.Mark = mark; m.Void == void {
				m.Void = revision
			}
		}
	}
	return m
}

// Renewed returns the mark that must be written before anything is taken. ok is false if none is to be written:
// the mark stands, since none of the three cases below is there, or it is Bad.
//
// leftAt is when this instance last followed the provider in another store, or in this one before it was restored;
// 0 if it never did. now is the present; it is used for next only, so a caller that wants only ok may pass 0. Both are
// corrected wall time, in nanoseconds since the Unix epoch. bound is the most by which any instance's clock errs, so
// two clocks differ by up to twice that.
//
// A new mark is needed in three cases:
//
//   - There is none: the store may come from a backup that is older than the first mark. That it has totals
//     does not show that it was not restored: an operator may have written them since.
//   - It was written in another cluster: it came with a backup.
//   - leftAt is not 0, and the mark does not tell of a restore later than that. Up to leftAt this instance's store
//     handed out permits. The store that answers now may not count them, even if the mark bears its cluster ID, as
//     where it runs on an older disk. Nor may its totals, which bear that ID too: so the new mark voids them (Void).
//     An operator's count from before the new mark has to be given again.
func (m MarkAt) Renewed(leftAt, now int64, bound time.Duration) (next Mark, ok bool) {
	switch {
	case m.Bad:
		return m.Mark, false // probably a newer version wrote it: it is kept, and nothing is taken
	case m.Revision != 0 && m.Cluster == m.AnsweredBy && (leftAt == 0 || m.Before > latestBefore(leftAt, bound)):
		return m.Mark, false
	}
	next = AfterRestore(m.AnsweredBy, now, bound)
	next.Void = m.Void
	if m.Revision != 0 && m.Cluster == m.AnsweredBy {
		next.Void = void
	}
	return next, true
}

// latestBefore returns the latest Before of a mark that some instance has written when this one's clock said leftAt,
// or earlier. The other clock said leftAt + 2*bound at the most, and AfterRestore adds the rest. So a mark with a
// later Before was written after this instance had left, and withholds all windows that had started by then.
//
// An operator's mark is not covered: Withholding and WithKeysTold are called with the time of a clock that is neither
// corrected nor measured.
func latestBefore(leftAt int64, bound time.Duration) int64 {
	return leftAt + 2*int64(bound) + 2*int64(bound) + 1
}

// AfterRestore returns the mark of a store that was restored at the instant now at the latest. cluster is the ID of
// the cluster that answers. now and bound are as in Renewed. If a total handed out permits of a window before the
// restore, the window had started by then, on some instance's clock; that clock was at most now + 2*bound. Before is
// one more, so that such a window starts before it.
func AfterRestore(cluster uint64, now int64, bound time.Duration) Mark {
	return Mark{Cluster: cluster, Before: now + 2*int64(bound) + 1}
}

// WithKeysTold returns the mark after an operator has vouched for the totals of keys: see Mark.KeysTold. If it is
// missing, unreadable or of another cluster, a new one replaces it. now is by the operator's clock, in nanoseconds
// since the Unix epoch; bound is as in Renewed, and does not cover that clock.
func (m MarkAt) WithKeysTold(now int64, bound time.Duration) Mark {
	next := m.Mark
	if m.Bad || m.Revision == 0 || m.Cluster != m.AnsweredBy {
		next = AfterRestore(m.AnsweredBy, now, bound)
		next.Void = m.Void
	}
	next.KeysTold = true
	return next
}

// Withholding returns the mark after an operator has said that the store was restored: the windows that have begun are
// withheld, whether they have a total in this store or not, and nobody vouches for the totals of keys any more. now and
// bound are as in WithKeysTold. What a readable mark's Before withholds already stays withheld, even if the operator's
// clock is behind.
func (m MarkAt) Withholding(now int64, bound time.Duration) Mark {
	next := AfterRestore(m.AnsweredBy, now, bound)
	next.Before, next.Void = max(next.Before, m.Before), void
	return next
}

// Verdict is what a mark says of one window.
type Verdict struct {
	Cluster uint64 // ID of the cluster that answers
	// Lost is what a window without a total means: empty if nobody has taken permits of it, or else why some
	// may have been taken.
	Lost string
	// Told is of a window of a key alone: the revision of the mark by which an operator has vouched for the
	// totals of keys. What a readable total with a lower revision has handed out counts, whichever cluster wrote
	// it, and what it withholds counts no more. 0 if nobody has vouched, and for a provider's window.
	Told   int64
	Void   int64 // Mark.Void
	before int64 // Mark.Before if Lost is earlierStore, else 0: Resumes uses it
}

// Of returns what the mark says of a window of a key if keys is set, and otherwise of the provider. since is the
// window's protocol.Budget.Since, in corrected wall time: when it starts or, of a sliding limit, Part.Counted+1 parts
// of time before that: whatever was handed out since then, by any clock, may still count.
func (m MarkAt) Of(since int64, keys bool) *Verdict {
	v := &Verdict{Cluster: m.AnsweredBy, Void: m.Void}
	switch {
	case m.Bad:
		v.Lost = badMark
	case m.Revision == 0:
		v.Lost = noMark
	case m.Cluster != m.AnsweredBy:
		v.Lost = otherCluster
	case keys && m.KeysTold:
		v.Told = m.Revision
	case since < m.Before:
		v.Lost, v.before = earlierStore, m.Before
	}
	return v
}

// Seen is Of for a reader who takes nothing, such as a status. Instances write a mark before they take, so without a
// mark none has taken anything here. The first mark will say what is lost: until then the reader shows nothing as lost.
func (m MarkAt) Seen(since int64, keys bool) *Verdict {
	if m.Revision == 0 {
		return &Verdict{Cluster: m.AnsweredBy}
	}
	return m.Of(since, keys)
}
