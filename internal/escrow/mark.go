package escrow

import "time"

// Mark is the value of a key that each provider has one of. It says what it means that a window has
// no total in etcd: that nobody has taken of it, or that an earlier store may have had one, which
// was restored from a backup since. docs/proof/protocol.md, section 14.
type Mark struct {
	// Cluster is the ID of the etcd cluster that wrote this. In another one the mark came with a
	// backup.
	Cluster uint64 `json:"cluster,string"`
	// Before is set where the store was restored: an earlier one may have handed out permits of
	// the windows that start before this instant, by totals that this one does not have. In
	// nanoseconds since the Unix epoch; 0: there was no earlier store.
	Before int64 `json:"before,omitempty"`
	// KeysTold says that an operator has vouched for the totals of keys since: nothing was used
	// of keys that they do not count.
	KeysTold bool `json:"keys_told,omitempty"`
}

// MarkAt is a mark as a cluster has it.
type MarkAt struct {
	Mark
	Revision int64  // of its key; 0: there is none
	Answers  uint64 // ID of the cluster that has answered
	Bad      bool   // it cannot be read
}

// ReadMark returns the mark in its key's value and revision, as the cluster has answered.
func ReadMark(value []byte, revision int64, cluster uint64) (m MarkAt) {
	if m.Revision, m.Answers = revision, cluster; revision != 0 {
		var err error
		m.Mark, err = Decode[Mark](value)
		m.Bad = err != nil
	}
	return m
}

// Renewed returns the mark that is to be written before anything is taken; ok is false if this one
// stands. now is by the wall clock, and clocks differ by at most twice the bound on their error.
//
// A mark of another cluster came with a backup. So may a store without a mark, whatever its totals
// say: an operator may have written them since. left is when the instance last followed the provider
// in another store, or in this one before it went back; 0 if it never did. A mark that does not tell
// of a later restore says nothing about what was handed out until then. So this instance knows
// better: than a backup, than whoever set the provider again, and than the operator who vouched.
func (m MarkAt) Renewed(left, now int64, bound time.Duration) (next Mark, ok bool) {
	switch {
	case m.Bad:
		return m.Mark, false // a newer version's; nothing is taken by it
	case m.Revision != 0 && m.Cluster == m.Answers && (left == 0 || m.Before > Put(0, left, 2*bound).Before):
		return m.Mark, false // by any clocks it was written after left
	}
	return Put(m.Answers, now, bound), true
}

// Put returns the mark of a store that was put back by now at the latest.
func Put(cluster uint64, now int64, bound time.Duration) Mark {
	return Mark{Cluster: cluster, Before: now + 2*int64(bound) + 1}
}

// Told returns the mark after an operator has vouched for the totals of keys.
func (m MarkAt) Told(now int64, bound time.Duration) Mark {
	next := m.Mark
	if m.Bad || m.Revision == 0 || m.Cluster != m.Answers {
		next = Put(m.Answers, now, bound)
	}
	next.KeysTold = true
	return next
}

// Store is what a mark says of a window, and of whom permits are taken.
type Store struct {
	Cluster uint64 // that answers
	// Lost says why a total that is not there says nothing; empty if it says that nobody has
	// taken.
	Lost string
	// Told is the revision since which an operator has vouched for the older totals; 0 if none
	// has.
	Told int64
}

// Of returns what the mark says of a window that starts at wall: of the provider, or of its keys.
func (m MarkAt) Of(wall int64, keys bool) *Store {
	s := &Store{Cluster: m.Answers}
	switch {
	case m.Bad:
		s.Lost = badMark
	case m.Revision == 0:
		s.Lost = noMark
	case m.Cluster != m.Answers:
		s.Lost = otherCluster
	case keys && m.KeysTold:
		s.Told = m.Revision
	case wall < m.Before:
		s.Lost = earlierStore
	}
	return s
}

// Seen is Of for somebody who only looks: without a mark no instance has looked for one yet, and
// nothing is known to be lost.
func (m MarkAt) Seen(wall int64, keys bool) *Store {
	if m.Revision == 0 {
		return &Store{Cluster: m.Answers}
	}
	return m.Of(wall, keys)
}
