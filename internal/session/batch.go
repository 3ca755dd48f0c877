package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// A batch is the members that register or list together, by one transaction. If etcd denies that, each has a
// transaction of its own. Package coordinator runs one batch after the other:
//
//  1. NextBatch says which members are in it, and makes a Joining for each. Coordinator gives each member that
//     registers the Incarnation to be registered: that of its last try, if that has failed under the same lease
//     and may have been written, else a new one.
//  2. For each member that registers, the event Admission decides whether it may, and from when it takes part.
//  3. The transaction writes the keys of the members that register, and lists, for each member, the keys of its
//     provider. Where these do not fit into the answer, they are read afterwards.
//  4. For each member, the event JoinEnded ends its part, whether it has succeeded or failed. Where keys are read
//     afterwards, that may be after the next batch has begun.

const (
	// MaxSessionInstances bounds, when a member registers, the sum of the instances of a session's providers,
	// of which each counts as MaxCounted at most. When all n instances of a provider start at once, etcd tells each
	// instance of n changes: n² in all, n of them to this session. Providers that grow later are not refused.
	MaxSessionInstances = 20_000
	// MaxCounted is the most that one provider adds to that sum. Otherwise a provider under which another
	// program has written many keys would keep all others out.
	MaxCounted = 2_000
)

// Incarnation is this process as one instance of a provider. Once it has lost its key or its lease it never
// gets them back: another incarnation follows, with another ID. The fields of one that is lost stay as they
// were. The zero Incarnation is none.
type Incarnation struct {
	ID      string
	Key     string // the name of its key in etcd
	Lease   int64  // ID of the lease under which the key is written
	Created int64  // revision at which the key was created; 0 until that is known
	// Value is the key's value as registered or, while Created is 0, as it is to be written. An end that is
	// announced later is not in it: Member.until.
	Value protocol.Instance
}

// Listing says where a provider's history begins: at the revision as of which all keys of the provider were read.
// The key of Incarnation was among them. This holds once the member's part in the batch has ended without an error.
// The batch sets Revision and Cluster as soon as its transaction is committed. The keys of a provider that has many
// are read only then, as of that revision. If etcd does not have it, since it was compacted or etcd was restored, they
// are read as of the present: Revision and Cluster are then those of that reading, and Revision may be lower.
type Listing struct {
	// Incarnation is the one whose key is listed. NextBatch sets the member's latest one, zero if it had none. For
	// a member that registers the batch then puts in its place the one that is to be registered.
	Incarnation
	Revision int64  // 0 until the batch's transaction is committed
	Cluster  uint64 // ID of the cluster that committed it, or in which the keys were read later; 0 until then
}

// Joining is a member's part in a batch. From NextBatch to the event JoinEnded the exported fields are owned
// by whoever runs the batch, who lends them to the machine for the event Admission.
type Joining struct {
	Member *Member
	Listing
	// Fresh is set for a member that registers. It becomes false if its key is found: an earlier try, perhaps of
	// this batch, has written it, and etcd's answer was lost.
	Fresh bool
	// Start is from when an instance that registers takes part, in corrected wall time: Admission puts it into
	// Value.From, unless the instance may be the first of the provider. If another one turns out to have been
	// there, From becomes Start after all. Start is zero if the member only lists, or if there is no policy.
	Start time.Time
	All   []view.Key // all keys of the provider, as listed
	Err   error      // why this member's part has failed; nil while it has not

	// The fields below are owned by the machine.

	// early are the changes that the watch has told since the batch began, one slice for each answer. They
	// are kept from before the transaction is sent, so no change after the listing's revision is missed.
	early [][]view.Key
	// As of when the batch began: the member's line, that line's gen, and the newest revision of the store that it knew.
	line   *Line
	gen    int
	newest int64
}

// NextBatch begins a batch of the members that need to be registered or listed, but of at most limit. Without a
// lease it has none. A member is left out if its sink is closed, if it is in a batch already, if it has no line
// (beyond MaxLines), or while its line has not begun: before its first watch is created, and after a gap. One that has
// failed is left out until the session's back-off is over. If again is set, it is over: no member counts as failed any
// more. failing reports whether any member still does.
func (m *Machine) NextBatch(limit int, again bool) (batch []*Joining, failing bool) {
	for _, p := range m.all() {
		p.failed = p.failed && !again
		failing = failing || p.failed
		if m.lease == (Lease{}) || p.stage == following || p.batch != nil || p.line == nil || !p.line.begun || p.failed || p.silent || len(batch) == limit {
			continue
		}
		p.batch = &Joining{Member: p, Fresh: p.stage == toRegister, Listing: Listing{Incarnation: p.own}, line: p.line, gen: p.line.gen, newest: p.line.history.Newest()}
		batch = append(batch, p.batch)
	}
	return batch, failing
}

// Admission is an event: a batch is about to write the key of a member that registers. The machine decides
// whether it may, and from when the instance takes part.
type Admission struct {
	*Joining
	// Keys is how many instances of the provider have a key. One of them may be this instance's own, if an
	// earlier try has written it and etcd's answer was lost. The instance then counts twice, and is not the first.
	Keys int64
	// Policy is the provider's; nil if there is none, or none that can be read.
	Policy *quota.Policy
}

// on sets Err if the session would have too many instances; the member then writes nothing. If there is a
// policy, it also sets Start, and Value's From and First:
//
//   - First is set if there is no key (Keys is 0), the policy's shape is fixed and p.newHere holds. The batch takes
//     it back if its transaction finds that another instance may still issue (docs/proof/protocol.md,
//     section 12).
//   - From is zero for the first, which has the windows that start after its registration. Otherwise it is Start:
//     far enough ahead for all others to know of this instance by then.
func (e Admission) on(m *Machine) {
	j, p := e.Joining, e.Member
	j.Err = m.seat(p, e.Keys+1)
	if e.Policy != nil {
		j.Start = startAmong(int(e.Keys)+1, m.now.Corrected, e.Policy)
		j.Value.From, j.Value.First = j.Start, e.Keys == 0 && !protocol.Shaped(e.Policy) && p.newHere()
	}
	if j.Value.First {
		j.Value.From = time.Time{}
	}
}

// newHere reports whether no registration of this member has succeeded before, and no watch of its session may have
// lost events. If it is false, etcd may have been restored. An etcd that shows no instances then proves nothing: the
// restore may have lost the keys of some that still issue.
func (p *Member) newHere() bool { return p.own.ID == "" && !p.m.gaps }

// seat notes in p.seats how many instances the provider of p will have, this one included. It returns an error,
// and notes 0, if the sum over the session's providers would be more than MaxSessionInstances. Each counts as MaxCounted
// at most; another provider counts as what was noted of it, or as what its view has if that is more. A session's only
// provider is never refused.
func (m *Machine) seat(p *Member, instances int64) error {
	all := min(instances, MaxCounted)
	for _, o := range m.members {
		if o != p {
			all += min(max(o.seats, int64(o.tracker.Instances())), MaxCounted)
		}
	}
	if p.seats = 0; all > MaxSessionInstances && len(m.members) > 1 {
		return fmt.Errorf("coordinator: %s: with it the providers of this session have %d instances in all, the most is %d: use fewer providers or fewer processes (docs/proof/scaling.md)",
			p.Provider, all, MaxSessionInstances)
	}
	p.seats = instances
	return nil
}

// JoinEnded is an event: a member's part in a batch has ended. Err says why it has failed; nil if it has not.
type JoinEnded struct{ *Joining }

// on begins the member's history with the listing and the changes that the watch has told since. It does not
//
//   - after a failure: the member is tried again after the session's back-off. If its key was gone, it
//     registers again then;
//   - if it was closed meanwhile: NextBatch leaves it out for ever;
//   - if it has another line, or its line had a gap: the listing proves nothing then, and the member is listed
//     again;
//   - if the listing is of another cluster than the watch, or older than what was known of the store when the batch
//     began: that is a gap. The member is listed again once its line has begun again and the back-off is over;
//   - if the lease was lost meanwhile, or is another one: the member registers again after the back-off. If its end
//     was announced, its sink is closed instead: see lose.
func (e JoinEnded) on(m *Machine) {
	j, p := e.Joining, e.Member
	p.batch = nil
	if j.Err != nil {
		if p.failed = true; errors.Is(j.Err, ErrGone) {
			p.stage = toRegister
		}
		err := j.Err
		if errors.Is(err, cause.ErrDenied) {
			err = p.denied(err)
		}
		p.tell(err)
		return
	}
	p.registered(j.Incarnation)
	p.stage = toList
	switch {
	case p.silent || j.line != p.line || j.gen != p.line.gen:
		return
	case j.Cluster != p.line.history.Cluster() || j.Revision < j.newest:
		p.failed = true
		p.line.replaced(j.Cluster, "a provider was listed in another store than the one that is watched")
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
