package view

import (
	"hash/fnv"
	"slices"
)

// Reports is what an instance knows of its report's key: its own writes are the
// marks by which it tells one store from another (see doubt). Each is written on
// the condition that the newest report is still the one that it knows. Somebody
// else may write or delete the key at any time; what the instance finds then is
// the condition of its next write, but no mark. The zero Reports knows nothing. It
// is not safe for concurrent use.
type Reports struct {
	newest int64    // revision of the key, as last found
	own    mark     // the newest write of this instance's own
	sent   []uint64 // sums of own writes that may have been committed after newest
}

type mark struct {
	revision int64
	sum      uint64
}

// maxSent bounds the writes whose answers were lost. A forgotten one is taken as
// somebody else's.
const maxSent = 16

// Newest returns the revision that the next report must find.
func (r *Reports) Newest() int64 { return r.newest }

// Own returns the revision of the newest known write of this instance's own.
func (r *Reports) Own() int64 { return r.own.revision }

// Pending returns sums of the own writes whose answers have not come.
func (r *Reports) Pending() []uint64 { return slices.Clone(r.sent) }

// Sent notes that a report is about to be written, and returns Newest.
func (r *Reports) Sent(value []byte) (after int64) {
	r.sent = append(r.sent[max(0, len(r.sent)+1-maxSent):], sumOf(value))
	return r.newest
}

// Found takes the answer to a report that was sent after a revision: the report
// that is there now, revision 0 without one. own tells that it is a new one of this
// instance's; gap, that the newest one is gone, as in a store that was put back.
func (r *Reports) Found(after, revision int64, value []byte) (own, gap bool) {
	switch {
	case after != r.newest, revision == r.newest:
		return false, false // another is known meanwhile, or it is the same
	case revision < r.newest:
		return false, true
	}
	if sum := sumOf(value); slices.Contains(r.sent, sum) {
		r.own, own = mark{revision, sum}, true
	}
	r.newest, r.sent = revision, nil
	return own, false
}

// Asked returns what is known when a store is asked for the report, for Kept.
func (r *Reports) Asked() Reports {
	return Reports{newest: r.newest, own: r.own, sent: slices.Clone(r.sent)}
}

// Kept returns the revision of the newest own write before the question that a
// store certainly has, by the report that it answers with; 0 if that says nothing.
// lost tells that the newest report is gone.
func (r *Reports) Kept(asked Reports, revision int64, value []byte) (kept int64, lost bool) {
	found := mark{revision, sumOf(value)}
	later := revision > asked.newest && (slices.Contains(asked.sent, found.sum) || slices.Contains(r.sent, found.sum))
	if found == asked.own || found == r.own || later {
		kept = asked.own.revision
	}
	return kept, revision < asked.newest
}

// Reset begins with a report of this instance's own.
func (r *Reports) Reset(revision int64, value []byte) {
	*r = Reports{newest: revision, own: mark{revision, sumOf(value)}}
}

func sumOf(value []byte) uint64 {
	h := fnv.New64a()
	h.Write(value)
	return h.Sum64()
}
