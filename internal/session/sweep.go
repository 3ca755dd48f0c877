package session

import "time"

// Issuer keys say which incarnations may still issue permits: docs/proof/protocol.md, section 12. One that
// an incarnation has left behind is swept away: the incarnation does not come back, and issues nothing
// once it has been gone for S, the settle time.

// sweepEvery is the least time between two rounds of sweeping.
const sweepEvery = 2 * time.Second

// sweeping is what a member knows of issuer keys that were left behind.
type sweeping struct {
	at     int64                // monotonic instant of the last round; 0: there was none
	clean  bool                 // the last round left none behind, and no instance has gone since
	gone   map[string]abandoned // the issuer keys left behind, by key, as of the last round
	settle time.Duration        // the largest S of the policies since the listing; 0: there was none
}

// abandoned is an issuer key whose incarnation is gone.
type abandoned struct {
	revision int64 // of the key
	at       int64 // monotonic instant by which the incarnation was gone
}

// IssuerKey is an issuer key as etcd has it.
type IssuerKey struct {
	Key      string
	Revision int64
}

// SweepDue reports whether a round is due at a monotonic instant, and begins it: the oldest instance of
// a fleet sweeps, after instances have gone.
func (p *Member) SweepDue(now int64) bool {
	w := &p.sweeping
	if p.stage != following || p.silent || p.policy == nil || w.clean || w.at != 0 && now-w.at < int64(sweepEvery) {
		return false
	}
	w.at, w.clean = now, p.tracker.Rank(p.own.ID) == 0
	return w.clean
}

// MayIssue reports whether the incarnation of an issuer key is there, or may be: the watch has not
// told of a key of this revision yet.
func (p *Member) MayIssue(id string, revision int64) bool {
	return p.tracker.Has(id) || p.line == nil || revision > p.line.history.Position()
}

// Swept ends a round that has found issuer keys for which MayIssue is false; ok is false if not all
// could be read, and the round counts for nothing. It returns those whose incarnations have been gone
// for S, which are to be deleted.
func (p *Member) Swept(found []IssuerKey, ok bool, now int64) (left []IssuerKey) {
	w, gone := &p.sweeping, map[string]abandoned{}
	if !ok || p.stage != following || w.settle == 0 {
		w.clean = false
		return nil
	}
	for _, k := range found {
		a := w.gone[k.Key]
		if a.revision != k.Revision {
			a = abandoned{k.Revision, now}
		}
		if gone[k.Key] = a; now-a.at >= int64(w.settle) {
			left = append(left, k)
		}
	}
	w.gone, w.clean = gone, w.clean && len(gone) == 0
	return left
}
