package escrow

import (
	"cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// A Purse is an instance's knowledge of what it has taken of one window. There may be many keys, so
// no instance writes into etcd what it has: it counts what etcd has acknowledged, and nothing else.
// A transaction writes the total, on the condition that it is as it was read:
//
//	total.Out >= the permits that all instances have taken, by their purses
//
// holds because a purse grows after such a transaction, and shrinks before one that gives back.
// Where no answer comes, or a give-back is refused whose copy may have been committed, the permits
// are stranded until the window ends. docs/proof/protocol.md, section 14. The zero Purse has taken
// nothing. It is not safe for concurrent use.
type Purse struct {
	// Taken are the permits that the instance may issue in the window, and has issued.
	Taken int64
	// total is the total's newest state known, at a revision of etcd; 0 if there is none.
	total    Total
	revision int64
	store    *Store // that answered last; nil if none did
	lost     bool   // the store went back, and its total does not say so
}

// Revision is that of the total's key by what is known; 0 if there is none.
func (p *Purse) Revision() int64 { return p.revision }

// Of reports whether what is known of the total is of the store that answers now; also if nothing
// is known. If it is not, nothing that was taken counts: the purse is to be a new one.
func (p *Purse) Of(s *Store) bool { return p.store == nil || p.store.Cluster == s.Cluster }

// Read takes the total's value and revision, as the store of the purse has answered: revision 0 if
// there is none.
func (p *Purse) Read(value []byte, revision int64, s *Store) {
	p.lost = p.lost || revision < p.revision
	p.total, p.revision, p.store = Total{}, revision, s
	if revision != 0 {
		p.total = ReadTotal(value, s.Cluster)
	}
	p.lost = p.lost && p.total.Withheld == ""
}

// Refused takes what was found in the place of the total that Next has returned. It reports
// whether no copy of that total was committed, nor will be: another one came in its place. Two
// totals that leave the same number are taken for copies.
func (p *Purse) Refused(next Total, value []byte, revision int64, s *Store) (never bool) {
	p.Read(value, revision, s)
	return p.total.Writes == next.Writes && p.total.Out != next.Out
}

// Withheld says why nothing more is handed out in the window, by what was read last; empty if
// more is.
func (p *Purse) Withheld() string {
	if p.store == nil {
		return ""
	}
	return p.withheld(p.store)
}

// withheld is Withheld by what a store says.
func (p *Purse) withheld(s *Store) string {
	switch {
	case p.revision == 0:
		return s.Lost
	case p.revision < s.Told && p.total.Withheld != unreadable:
		return ""
	case p.total.Cluster != s.Cluster:
		return cmp.Or(p.total.Withheld, otherCluster)
	}
	return p.total.Withheld
}

// Left returns how many permits of the limit nobody has taken, by what was read last; negative if
// nothing was.
func (p *Purse) Left(limit int64) int64 {
	if p.store == nil {
		return -1
	}
	return p.left(limit, p.store)
}

func (p *Purse) left(limit int64, s *Store) int64 {
	if p.withheld(s) != "" {
		return 0
	}
	return max(0, limit-p.total.Out) // without a total, nothing is out
}

// Total returns what was read last.
func (p *Purse) Total() Total { return p.total }

// Next returns the total to write, if it is at Revision, and by how many permits it differs:
// fewer than none if u.Back are given back, which Taken has no more. ok is false if there is
// nothing to write. The purse is Of the store.
func (p *Purse) Next(r Rule, u Use, back int64, s *Store) (next Total, n int64, ok bool) {
	next = p.total
	next.Limit, next.Cluster, next.Withheld = r.Limit, s.Cluster, p.withheld(s)
	next.Writes++
	switch {
	case next.Withheld != "":
		return next, 0, false
	case p.lost:
		next.Withheld = wentBack
		return next, 0, true
	case back > 0:
		n = -min(back, next.Out)
	default:
		n = r.more(p.left(r.Limit, s), p.Taken-u.Used, u)
	}
	next.Out += n
	return next, n, n != 0
}

// Committed notes that the total that Next has returned was written, at a revision.
func (p *Purse) Committed(next Total, n, revision int64, s *Store) {
	p.Taken += max(0, n)
	p.total, p.revision, p.store, p.lost = next, revision, s, false
}

// KeyUse is what an instance does with its part of a long limit. The instance hands it out, and takes
// it back before it hands out another one of this window.
type KeyUse struct {
	Key string // "" is the provider
	protocol.Budget
	Purse Purse
	// Back are permits that the purse has no more, and that are given back.
	Back int64
	Use  Use
	// Share is that of Rule.
	Share int64
	Away  bool // etcd did not answer
}
