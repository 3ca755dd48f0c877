package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// MaxInstances bounds the instances of all providers of a session together. When a fleet starts at
	// once, etcd tells each instance of every other one, which is the square of that number.
	MaxInstances = 20_000
	// MaxCounted is the most that one provider counts for in that sum. Otherwise a provider under which
	// another program has written many keys would keep all others out.
	MaxCounted = 2_000
)

// Incarnation is this process as one instance of a provider. After it has lost its key or lease another
// one follows, with another ID.
type Incarnation struct {
	ID      string
	Key     string            // in etcd; empty while there is none
	Lease   int64             // of the key
	Created int64             // revision at which the key was created; 0 before
	Value   protocol.Instance // the key's value, as written
}

// Listing says where a provider's history begins: at a revision at which all its keys were read, and the
// key of this incarnation was among them.
type Listing struct {
	Incarnation
	Revision int64  // 0 until the keys were read
	Cluster  uint64 // ID of the cluster that was read
}

// Joining is a member's part in a batch. The batch writes the member's key if Fresh is set, and lists all
// keys of the provider. From NextBatch to Joined the exported fields are owned by whoever runs the batch,
// who lends them to the machine for the event Admitted.
type Joining struct {
	Member *Member
	Listing
	Fresh bool       // the key is to be written; otherwise it is there
	Start time.Time  // from when a fresh instance takes part, unless it is the first of its fleet
	All   []view.Key // as listed
	Err   error      // why it has failed; nil while it has not

	// The fields below are owned by the machine.

	// early are the changes that the watch has told since the batch began, one slice for each answer. They
	// are kept from before the key is written, so none after the listing is missed.
	early    [][]view.Key
	line     *Line // the member's when the batch began
	gen      int   // the line's then
	position int64 // the line's then
}

// NextBatch begins a batch of at most most members that need to be registered or listed; of none while there is
// no lease. A member is left out if it is closed or in a batch already, or if its line has not begun. One that
// has failed is left out until NextBatch is called with again. failing reports whether any was left out for that.
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

// Admitted is an event: a batch is about to write the key of a fresh member. Others is how many other
// instances of the provider have a key; Policy is the provider's, nil if none can be read.
type Admitted struct {
	*Joining
	Others int64
	Policy *quota.Policy
}

// on sets Start and Value, or Err if there are too many instances. The member takes part from an instant that
// is far enough ahead for all others to know by then; if it is the first of its fleet, at once.
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

// newHere reports whether this process has never been an instance of the provider, and no watch of its
// session has lost events. Otherwise a provider without instances proves nothing: etcd may have been
// restored, and other instances may not have noticed yet.
func (p *Member) newHere() bool { return p.own.ID == "" && !p.m.gaps }

// seat notes how many instances a provider will have, this one included. It returns an error if all
// providers together would have more than MaxInstances. A session's only provider is never refused.
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
	p.registered(j.Incarnation)
	p.stage = toList
	switch {
	case p.silent || j.line != p.line || j.gen != p.line.gen: // it is closed, or a gap was found meanwhile
		return
	case j.Cluster != p.line.history.Cluster() || j.Revision < j.position:
		p.failed = true
		p.line.gap("etcd was restored or replaced: a provider was listed in another store than the one that is watched")
		return
	case m.lease == (Lease{}) || p.own.Lease != m.lease.ID:
		p.lose(ErrLease)
		return
	}
	p.stage = following
	p.untold = 0
	p.begin(j.Listing, j.All)
	if j.Fresh {
		p.untold = p.own.Created
	}
	for _, keys := range j.early { // the tracker ignores those that the listing has
		p.take(keys)
	}
}
