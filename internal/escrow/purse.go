package escrow

import "github.com/quotient-limiter/quotient/internal/protocol"

// A Purse is an instance's knowledge of what it has taken of one window of a key. There are many
// keys, so no instance writes a holding of them: it counts what etcd has acknowledged, and
// nothing else. A transaction writes the total, on the condition that it is as it was read:
//
//	total.Out >= the permits that all instances have taken, by their purses
//
// holds because a purse grows after such a transaction, and shrinks before one that gives back.
// Where no answer comes, or a give-back is refused whose copy may have been committed, the permits
// are stranded until the window ends. docs/protocol.md, section 14. The zero Purse has taken
// nothing. It is not safe for concurrent use.
type Purse struct {
	// Taken are the permits that the instance may issue in the window, and has issued.
	Taken int64
	// total is the total's newest state known, at a revision of etcd; 0 if there is none.
	total    Total
	revision int64
	cluster  uint64 // that answered last; 0 if none did
	lost     bool   // the store went back
}

// found is what is known of the total.
func (p *Purse) reading(cluster uint64) *Reading {
	return &Reading{Cluster: cluster, Revision: p.revision, Total: p.total, TotalRevision: p.revision}
}

// Revision is that of the total's key by what is known; 0 if there is none.
func (p *Purse) Revision() int64 { return p.revision }

// Read takes the total's value and revision, as the cluster has answered: revision 0 if there is
// none.
func (p *Purse) Read(value []byte, revision int64, cluster uint64) {
	if revision < p.revision || p.cluster != 0 && p.cluster != cluster {
		p.lost = true
	}
	p.total, p.revision, p.cluster = Total{}, revision, cluster
	if revision != 0 {
		p.total = ReadTotal(value, cluster)
	}
}

// Refused takes what was found in the place of the total that Next has returned. It reports
// whether no copy of that total was committed, nor will be: another one came in its place. Two
// totals that leave the same number are taken for copies.
func (p *Purse) Refused(next Total, value []byte, revision int64, cluster uint64) (never bool) {
	p.Read(value, revision, cluster)
	return p.total.Writes == next.Writes && p.total.Out != next.Out
}

// Withheld says why nothing more is handed out in the window, by what was read last; empty if
// more is.
func (p *Purse) Withheld() string { return p.reading(p.cluster).Withheld() }

// Left returns how many permits of the limit nobody has taken, by what was read last; negative if
// nothing was.
func (p *Purse) Left(limit int64) int64 {
	if p.cluster == 0 {
		return -1
	}
	return Rule{Limit: limit}.Left(p.reading(p.cluster))
}

// Next returns the total to write, if it is at Revision, and by how many permits it differs:
// fewer than none if u.Back are given back, which Taken has no more. ok is false if there is
// nothing to write. cluster is the one that has answered this session.
func (p *Purse) Next(r Rule, u Use, back int64, cluster uint64) (next Total, n int64, ok bool) {
	f := p.reading(cluster)
	next = p.total
	next.Limit, next.Cluster = r.Limit, cluster
	next.Writes++
	foreign := p.revision != 0 && p.total.Cluster != cluster
	switch {
	case p.lost || foreign || p.cluster != 0 && p.cluster != cluster: // what was read is of another store
		if p.total.Withheld != "" && !foreign {
			return next, 0, false
		}
		if next.Withheld = wentBack; foreign {
			next.Withheld = otherCluster
		}
		return next, 0, true
	case next.Withheld != "":
		return next, 0, false
	case back > 0:
		n = -min(back, next.Out)
	default:
		n = r.more(r.Left(f), p.Taken-u.Used, u)
	}
	next.Out += n
	return next, n, n != 0
}

// Committed notes that the total that Next has returned was written, at a revision.
func (p *Purse) Committed(next Total, n, revision int64, cluster uint64) {
	p.Taken += max(0, n)
	p.total, p.revision, p.cluster = next, revision, cluster
}

// KeyUse is what an instance does with its part of a long limit of a key. The instance hands it
// out, and takes it back before it hands out another one of this key.
type KeyUse struct {
	Key string
	protocol.Budget
	Purse Purse
	// Back are permits that the purse has no more, and that are given back.
	Back int64
	Use  Use
	// Share is that of Rule.
	Share int64
	Away  bool // etcd did not answer
}
