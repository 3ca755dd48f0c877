package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// member is what a session knows of a provider, and of its own part in it.
type member struct {
	m        *machine
	provider string
	folder   string // of the provider
	sink     feed.Sink
	line     *line // nil beyond mostFolders

	stage  stage
	batch  *joining // that it is in, or nil
	failed bool     // it waits for the session's back-off
	seats  int64    // how many instances there were when it registered
	// Of the batch, or of close when that is over:
	attempt *incarnation // one to register whose outcome is unknown; nil if there is none

	incarnation          // in force, or the last one; without an ID there was none
	until       int64    // announced end, corrected wall time; 0 if none was announced
	silent      bool     // the sink is closed
	listed      int64    // revision of the listing
	store       uint64   // ID of the cluster that was listed; 0 before the first listing
	lastHeard   int64    // corrected wall time at which this store last told of the provider
	elsewhere   int64    // lastHeard of another store, or of this one before it went back; 0: none had a policy
	since       int64    // monotonic, when it was listed: earlier probes do not count
	untold      int64    // revision of its key that the watch has still to tell while it follows; 0: none
	failure     error    // the reason why this membership cannot follow its provider, or nil
	forbidden   [2]error // what its role does not allow: toThrottle, toTake
	problem     string   // all of that, as last told to the sink
	logged      string   // what of it is its own

	tracker  view.Tracker
	policy   *quota.Policy     // in the view
	policyAt int64             // revision of policy
	throttle protocol.Throttle // in the view
	sweeping sweeping
}

// call emits a call of the sink, unless that is closed.
func (p *member) call(do func()) {
	if !p.silent {
		p.m.emit(call(do))
	}
}

// take takes events of its folder. They are kept while it is in a batch, and dropped while
// it waits for one: its listing will have them.
func (p *member) take(keys []view.Key) {
	if p.stage != following {
		if p.batch != nil {
			p.batch.early = append(p.batch.early, keys)
		}
		return
	}
	for i := range keys {
		if keys[i].Kind == view.Instance && keys[i].ID == p.id && keys[i].Revision == p.untold {
			p.untold = 0
		}
	}
	at := p.m.now.Instant
	for _, c := range p.tracker.Events(keys) {
		if c.Policy != nil || c.PolicyDeleted {
			p.policy, p.policyAt = c.Policy, c.Revision
			p.notePolicy()
		}
		if c.Throttle != nil || c.ThrottleDeleted {
			p.noteThrottle(c.Throttle)
		}
		if len(c.Deleted) > 0 {
			p.sweeping.clean = false
		}
		p.call(func() { p.sink.Apply(at, c) })
	}
	if len(keys) > 0 {
		p.tell(nil)
	}
	if !p.tracker.Has(p.id) {
		p.lose(errGone)
	} else if p.tracker.Instances() > protocol.MaxInstances {
		p.stage, p.failed = toList, true
		p.tell(protocol.ErrTooMany)
		p.m.emit(wake{})
	}
}

// noteThrottle notes the view's throttle; nil if there is none.
func (p *member) noteThrottle(t *protocol.Throttle) {
	if p.throttle = (protocol.Throttle{}); t != nil {
		p.throttle = *t
	}
}

// notePolicy notes how long issuer keys of instances that are gone must stay by the policy in the view.
func (p *member) notePolicy() {
	if p.policy != nil {
		p.sweeping.settle = max(p.sweeping.settle, p.policy.Settle)
	}
}

// lose notes that the incarnation is over: another follows, unless its end was announced.
func (p *member) lose(err error) {
	p.stage, p.failed = toRegister, true
	if p.until != 0 {
		p.silence()
		return
	}
	p.tell(err)
	p.m.emit(wake{})
}

// silence closes the sink: it issues nothing more, for good.
func (p *member) silence() {
	p.call(p.sink.Close)
	p.silent = true
}

// prove passes the line's proof on.
func (p *member) prove(proof clock.Instant) {
	if p.stage != following || proof.Mono < p.since || p.silent {
		return
	}
	p.lastHeard = p.m.now.wall
	p.call(func() { p.sink.Prove(proof) })
	if p.problem != "" {
		p.tell(nil)
	}
}

// tell tells the sink the problem, if that has changed. It logs the provider's own part of
// it; the session and the line log theirs once.
func (p *member) tell(err error) {
	p.failure = err
	own := errors.Join(err, p.tracker.Problem(), p.forbidden[toThrottle], p.forbidden[toTake])
	all := errors.Join(p.m.problem(), own)
	if p.line != nil {
		all = errors.Join(all, p.line.failure)
	}
	if text := textOf(own); text != p.logged && !p.silent {
		if p.logged = text; own != nil {
			p.m.log(slog.LevelWarn, "provider has a problem", "provider", p.provider, "problem", text)
		} else {
			p.m.log(slog.LevelInfo, "provider has recovered", "provider", p.provider)
		}
	}
	if text := textOf(all); text != p.problem && !p.silent {
		p.problem = text
		p.call(func() { p.sink.Trouble(all) })
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// troubled is a membership that cannot go on for now.
type troubled struct {
	*membership
	err error
}

func (e troubled) on(*machine) { e.tell(e.err) }

// Rights that a role may lack.
const (
	toThrottle = iota // to write the throttle
	toTake            // to take permits of long limits
)

// asked is a membership that has asked for something that its role may not allow, with what etcd
// has answered.
type asked struct {
	*membership
	what int
	err  error
}

func (e asked) on(*machine) {
	forbidden := &e.forbidden[e.what]
	switch {
	case errors.Is(e.err, ErrPermission):
		*forbidden = fmt.Errorf("%w; create its role again: quota-admin roles consumer %s", e.err, e.provider)
	case e.err != nil || *forbidden == nil:
		return
	default:
		*forbidden = nil
	}
	e.tell(e.failure)
}

// closing is a membership whose sink is to be closed.
type closing struct{ *membership }

func (e closing) on(*machine) { e.silence() }

// admitted is a membership that is about to register, among others under a policy or none.
type admitted struct {
	*joining
	others int64
	policy *quota.Policy
}

// on sets from when the membership takes part, far enough ahead that all others know by then.
// Without others it may be the first.
func (e admitted) on(m *machine) {
	j, p := e.joining, e.p
	j.err = m.seat(p, e.others+1)
	if e.policy != nil {
		j.from = startAmong(int(e.others)+1, m.now.wall, e.policy)
		j.m.value.From, j.m.value.First = j.from, e.others == 0 && !protocol.Shaped(e.policy) && p.newHere()
	}
	if j.m.value.First {
		j.m.value.From = time.Time{}
	}
}

// newHere reports whether this process has not been an instance of the provider before, and
// its session has missed nothing of the store. Otherwise that nobody is there may be the work
// of a restore, which others have yet to notice.
func (p *member) newHere() bool { return p.id == "" && !p.m.gaps }

// seat notes that a provider will have so many instances. It returns an error if those of
// all providers are too many then.
func (m *machine) seat(p *membership, instances int64) error {
	seats := min(instances, maxCounted)
	for _, o := range m.memberships {
		if o != p {
			seats += min(max(o.seats, int64(o.tracker.Instances())), maxCounted)
		}
	}
	if p.seats = 0; seats > maxSeats && len(m.memberships) > 1 {
		return fmt.Errorf("coordinator: %s: with it the providers of this session have %d instances in all, the most is %d: use fewer providers or fewer processes (docs/proof/scaling.md)",
			p.provider, seats, maxSeats)
	}
	p.seats = instances
	return nil
}

// joined is a membership whose batch is over.
type joined struct{ *joining }

// on begins its history with the listing, and with the events since.
func (e joined) on(m *machine) {
	j, p := e.joining, e.p
	p.batch = nil
	if j.err == nil || errors.Is(j.err, errGone) {
		p.attempt = nil
	}
	if j.err != nil {
		if p.failed = true; errors.Is(j.err, errGone) {
			p.stage = toRegister
		}
		p.tell(j.err)
		return
	}
	p.incarnation, p.stage = j.m.incarnation, toList
	switch {
	case p.silent || j.line != p.line || j.gen != p.line.gen: // it is closed, or a gap was found meanwhile
		return
	case j.m.cluster != p.line.Cluster() || j.m.revision < j.position:
		p.failed = true
		p.line.gap("etcd was restored or replaced: a provider was listed in another store than the one that is watched")
		return
	case m.lease == nil || p.lease != m.lease.id:
		p.lose(errLease)
		return
	}
	p.stage = following
	p.untold = 0
	p.begin(j.m, j.all)
	if j.fresh {
		p.untold = p.created
	}
	for _, keys := range j.early { // an event that comes again is not the same change twice
		p.take(keys)
	}
}

// begin starts the history from a listing.
func (p *member) begin(m listing, all []view.Key) {
	at := p.m.now.Instant
	if p.store != 0 && (m.cluster != p.store || m.revision < max(p.listed, p.policyAt)) {
		if p.policy != nil {
			p.elsewhere = p.lastHeard
		}
		p.call(p.sink.Restored)
	}
	p.store, p.lastHeard = m.cluster, p.m.now.wall
	v := p.tracker.List(m.revision, all)
	v.First = m.value.First && m.revision == m.created
	p.policy, p.policyAt, p.since, p.listed = v.Policy, v.PolicyRevision, at.Mono, m.revision
	p.sweeping = sweeping{}
	p.noteThrottle(v.Throttle)
	p.notePolicy()
	id, until := p.id, p.until
	p.call(func() { p.sink.Reset(at, id, v) })
	if until != 0 {
		p.call(func() { p.sink.Announce(until) })
	}
	p.tell(nil)
}

// ending is an instance that is to announce its end.
type ending struct{ *membership }

// on finds the end. The sink is bound from the moment of sending on, whether or not the
// write commits.
func (e ending) on(m *machine) {
	held := heldBack(e.tracker.Instances(), e.policy) // watches may be closed for a little
	until := e.endAt(protocol.LastWindow(m.now.wall+int64(held), e.policy)).UnixNano()
	e.until = until
	e.call(func() { e.sink.Announce(until) })
}

// endAt is the end of this instance that comes nearest to an instant: not before it begins
// to take part.
func (p *member) endAt(at time.Time) time.Time {
	if at.Before(p.value.From) {
		return p.value.From
	}
	return at
}

// fresh reports whether the view is proved to be recent at a monotonic instant.
func (p *member) fresh(now int64) bool {
	return p.stage == following && p.line.proved != 0 && p.line.proved >= p.since && now-p.line.proved < int64(p.freshness())
}

func (p *member) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
