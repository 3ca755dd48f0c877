package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Bounds on the instances of all providers of a session together: when all start at once, each is told
// of each. A provider counts for MaxCounted at most, so that foreign keys of one do not keep others
// out.
const (
	MaxInstances = 20_000
	MaxCounted   = 2_000
)

// Incarnation is this process as one instance of a provider. After it has lost its key or lease another
// one follows, with another ID.
type Incarnation struct {
	ID      string
	Key     string            // in etcd; empty while there is none
	Lease   int64             // of the key
	Created int64             // revision at which the key was created; 0 before
	Value   protocol.Instance // what the key has, as written
}

// Listing is where a history begins: with everything under the provider as of a revision, while the
// own key is there.
type Listing struct {
	Incarnation
	Revision int64  // as of which it was read; 0 before
	Cluster  uint64 // ID of the cluster that was read
}

// Joining is a member in a batch: its key is written if it is fresh, and all keys of the provider are
// listed. Whoever runs the batch owns what is exported, until Joined.
type Joining struct {
	Member *Member
	Listing
	Fresh bool       // the key is to be written; otherwise it is there
	Start time.Time  // from when a fresh instance takes part, unless it is the first of its fleet
	All   []view.Key // as listed
	Err   error      // why it has failed; nil while it has not

	// The machine's own. Events of the provider are kept from before anything of it is written.
	early    [][]view.Key // events since the batch began, by the watch's answers
	line     *Line        // the member's when the batch began
	gen      int          // the line's then
	position int64        // the line's then
}

// NextBatch takes members that are to be registered or listed, at most so many, while there is a lease.
// Each has a line that has begun. With again it takes those that have failed, too; failing tells that
// there are others.
func (m *Machine) NextBatch(most int, again bool) (batch []*Joining, failing bool) {
	for _, p := range m.all() {
		p.failed = p.failed && !again
		failing = failing || p.failed
		if m.lease == (Lease{}) || p.stage == following || p.batch != nil || p.line == nil || !p.line.begun || p.failed || p.silent || len(batch) == most {
			continue
		}
		p.batch = &Joining{Member: p, Fresh: p.stage == toRegister, Listing: Listing{Incarnation: p.own}, line: p.line, gen: p.line.gen, position: p.line.history.Position()}
		batch = append(batch, p.batch)
	}
	return batch, failing
}

// Admitted is an event: a fresh member of a batch is about to write its key. Others is how many
// instances have one; Policy is the provider's, nil if none can be read.
type Admitted struct {
	*Joining
	Others int64
	Policy *quota.Policy
}

// on sets from when the member takes part, far enough ahead that all others know by then. Without
// others it may be the first.
func (e Admitted) on(m *Machine) {
	j, p := e.Joining, e.Member
	j.Err = m.seat(p, e.Others+1)
	if e.Policy != nil {
		j.Start = startAmong(int(e.Others)+1, m.now.Corrected, e.Policy)
		j.Value.From, j.Value.First = j.Start, e.Others == 0 && !protocol.Shaped(e.Policy) && p.newHere()
	}
	if j.Value.First {
		j.Value.From = time.Time{}
	}
}

// newHere reports whether this process has not been an instance of the provider before, and
// its session has missed nothing of the store. Otherwise that nobody is there may be the work
// of a restore, which others have yet to notice.
func (p *Member) newHere() bool { return p.own.ID == "" && !p.m.gaps }

// seat notes that a provider will have so many instances. It returns an error if those of
// all providers are too many then.
func (m *Machine) seat(p *Member, instances int64) error {
	all := min(instances, MaxCounted)
	for _, o := range m.members {
		if o != p {
			all += min(max(o.seats, int64(o.tracker.Instances())), MaxCounted)
		}
	}
	if p.seats = 0; all > MaxInstances && len(m.members) > 1 {
		return fmt.Errorf("coordinator: %s: with it the providers of this session have %d instances in all, the most is %d: use fewer providers or fewer processes (docs/proof/scaling.md)",
			p.Provider, all, MaxInstances)
	}
	p.seats = instances
	return nil
}

// Joined is an event: a member's part in a batch is over.
type Joined struct{ *Joining }

// on begins the member's history with the listing, and with the events since.
func (e Joined) on(m *Machine) {
	j, p := e.Joining, e.Member
	p.batch = nil
	if j.Err != nil {
		if p.failed = true; errors.Is(j.Err, ErrGone) {
			p.stage = toRegister
		}
		p.tell(j.Err)
		return
	}
	p.own, p.stage = j.Incarnation, toList
	switch {
	case p.silent || j.line != p.line || j.gen != p.line.gen: // it is closed, or a gap was found meanwhile
		return
	case j.Cluster != p.line.history.Cluster() || j.Revision < j.position:
		p.failed = true
		p.line.gap("etcd was restored or replaced: a provider was listed in another store than the one that is watched")
		return
	case m.lease == (Lease{}) || p.own.Lease != m.lease.ID:
		p.lose(errLease)
		return
	}
	p.stage = following
	p.untold = 0
	p.begin(j.Listing, j.All)
	if j.Fresh {
		p.untold = p.own.Created
	}
	for _, keys := range j.early { // an event that comes again is not the same change twice
		p.take(keys)
	}
}
