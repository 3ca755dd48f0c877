package escrow

import "time"

// Mark is the value of one entry in etcd for each provider. It says what a window without a total means:
// either nobody has taken permits of it, or they were taken before etcd was restored from a backup, by a total
// that was lost. docs/proof/protocol.md, section 14.
type Mark struct {
	// Cluster is the ID of the etcd cluster that wrote this. In another one the mark came with a
	// backup.
	Cluster uint64 `json:"cluster,string"`
	// Before is an instant in nanoseconds since the Unix epoch, or 0. If it is set, permits of the windows that
	// start before it may have been handed out by totals that this store does not have.
	Before int64 `json:"before,omitempty"`
	// KeysTold says that an operator has vouched for the totals of keys since: of a key without one nothing
	// was used.
	KeysTold bool `json:"keys_told,omitempty"`
}

// MarkAt is a mark as it was read.
type MarkAt struct {
	Mark
	Revision int64  // of its entry; 0 if there is none
	Answers  uint64 // ID of the cluster that has answered
	Bad      bool   // the entry is there and cannot be read
}

// ReadMark returns the mark in an entry with this value and revision, which the cluster with this ID has answered;
// revision 0 if there is no entry.
func ReadMark(value []byte, revision int64, cluster uint64) (m MarkAt) {
	if m.Revision, m.Answers = revision, cluster; revision != 0 {
		var err error
		m.Mark, err = Decode[Mark](value)
		m.Bad = err != nil
	}
	return m
}

// Renewed returns the mark that must be written before anything is taken; ok is false if this one stands. left
// is when this instance last followed the provider in another store, or in this one before it went back; 0 if it
// never did. left and now are corrected wall time, in nanoseconds since the Unix epoch. bound is the most by which a clock
// errs, so two clocks differ by up to twice that.
//
// A new mark is needed in three cases:
//
//   - There is none: the store may come from a backup that was older than the first mark. Totals prove
//     nothing, since an operator may have written them after that.
//   - It was written by another cluster: it came with a backup.
//   - It does not tell of a restore later than left. Permits were handed out in the store that this instance
//     followed until then, and this one does not know them, whoever wrote the mark.
func (m MarkAt) Renewed(left, now int64, bound time.Duration) (next Mark, ok bool) {
	switch {
	case m.Bad:
		return m.Mark, false // a newer version wrote it; nothing is taken by it
	case m.Revision != 0 && m.Cluster == m.Answers && (left == 0 || m.Before > Put(0, left, 2*bound).Before):
		return m.Mark, false // however the clocks differ, it tells of a restore after left
	}
	return Put(m.Answers, now, bound), true
}

// Put returns the mark of a store that was restored at the instant now or before. bound is as in Renewed.
func Put(cluster uint64, now int64, bound time.Duration) Mark {
	return Mark{Cluster: cluster, Before: now + 2*int64(bound) + 1}
}

// Told returns the mark after an operator has vouched for the totals of keys: see Mark.KeysTold. now and bound
// are as in Renewed.
func (m MarkAt) Told(now int64, bound time.Duration) Mark {
	next := m.Mark
	if m.Bad || m.Revision == 0 || m.Cluster != m.Answers {
		next = Put(m.Answers, now, bound)
	}
	next.KeysTold = true
	return next
}

// Store is what a mark says of one window in a store.
type Store struct {
	Cluster uint64 // ID of the one that answers
	// Lost is what a window without a total means: empty if nobody has taken permits of it, or else why some
	// may have been taken.
	Lost string
	// Told is the revision at which an operator has vouched for all totals that are older; 0 if none has.
	Told int64
}

// Of returns what the mark says of a window that starts at the wall time wall: a window of a key if keys is set,
// and otherwise of the provider.
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

// Seen is Of for a reader who takes nothing, such as a status. If there is no mark, no instance has taken
// anything yet, and nothing is said to be lost.
func (m MarkAt) Seen(wall int64, keys bool) *Store {
	if m.Revision == 0 {
		return &Store{Cluster: m.Answers}
	}
	return m.Of(wall, keys)
}
