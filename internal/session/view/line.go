package view

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// Line follows what one watch of the store has delivered, and what linearizable reads
// prove of that: for all providers that the watch tells of. The zero Line knows nothing;
// Begin starts it. It is not safe for concurrent use.
type Line struct {
	cluster  uint64
	position int64 // up to here the watch has delivered
	newest   int64 // newest known of the store

	proof   clock.Instant // newest settled, zero if none
	pending []answer
}

// answer is a probe's answer that waits for the position to reach its revision.
type answer struct {
	sent     clock.Instant
	revision int64
}

// maxPending bounds the answers that wait. The oldest prove least.
const maxPending = 32

// Begin starts again with a watch of a cluster that tells everything after a revision.
func (l *Line) Begin(revision int64, cluster uint64) {
	*l = Line{cluster: cluster, position: revision, newest: revision}
}

// Progress says that the watch has delivered everything up to a revision.
func (l *Line) Progress(revision int64) {
	l.position = max(l.position, revision)
	l.newest = max(l.newest, revision)
	l.settle()
}

// Probe is a linearizable read under way.
type Probe struct {
	sent  clock.Instant
	floor int64 // what its answer must at least return
}

// Sent notes that a linearizable read is sent at the instant at.
func (l *Line) Sent(at clock.Instant) Probe { return Probe{sent: at, floor: l.newest} }

// WentBack reports whether the answer of a probe shows that the store is another one, or
// went back: the history has a gap, and only Begin helps.
func (l *Line) WentBack(p Probe, revision int64, cluster uint64) bool {
	return revision < p.floor || cluster != l.cluster
}

// Answer takes the answer of a probe for which WentBack is false.
func (l *Line) Answer(p Probe, revision int64) {
	l.newest = max(l.newest, revision)
	l.pending = append(l.pending[max(0, len(l.pending)+1-maxPending):], answer{p.sent, revision})
	l.settle()
}

// settle turns the answers that the position has reached into the proof.
func (l *Line) settle() {
	l.pending = slices.DeleteFunc(l.pending, func(a answer) bool {
		if a.revision > l.position {
			return false
		}
		if a.sent.Mono > l.proof.Mono {
			l.proof = a.sent
		}
		return true
	})
}

// Proof returns the newest instant of which it is proved that the watch has delivered
// everything committed before it; false if there is none.
func (l *Line) Proof() (clock.Instant, bool) { return l.proof, l.proof != clock.Instant{} }

// Behind reports whether an answer waits for the watch to catch up.
func (l *Line) Behind() bool {
	return slices.ContainsFunc(l.pending, func(a answer) bool { return a.revision > l.position })
}

// Position returns up to where the watch has delivered. A watch that continues begins at
// the next revision.
func (l *Line) Position() int64 { return l.position }

// Newest returns the newest revision of the store that is known.
func (l *Line) Newest() int64 { return l.newest }

// Cluster returns the ID of the cluster that is watched.
func (l *Line) Cluster() uint64 { return l.cluster }
