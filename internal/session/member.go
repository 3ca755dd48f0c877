package session

import (
	"errors"
	"log/slog"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Member is what a session knows of one provider, and of its own part in it. Make one with NewMember.
type Member struct {
	m        *Machine
	Provider string
	Folder   string    // of the provider's keys in etcd; it ends with a slash
	Sink     feed.Sink // hears the effects about this member; the machine itself never calls it

	line   *Line // that tells of the provider; nil beyond MaxLines
	stage  stage
	batch  *Joining // that the member is in; nil if it is in none
	failed bool     // its last batch has failed: it is in no other until the session's back-off is over
	seats  int64    // how many instances the provider was to have when this one registered
	silent bool     // Close was emitted: nothing more is

	own    Incarnation // in force, or the last one; without an ID there was none
	until  int64       // the end that it has announced, in corrected Unix nanoseconds; 0 if none
	untold int64       // revision of its key until the watch has told of it; 0 after that

	listed int64  // revision of the newest listing or, after a gap, up to which the watch had told
	since  int64  // monotonic instant of that listing: probes that were sent before prove nothing of it
	store  uint64 // ID of the cluster that was listed; 0 before the first listing
	// lastHeard is when this store last told of the provider, in corrected Unix nanoseconds. elsewhere is
	// lastHeard of another store, or of this one before it went back; 0 if none had a policy.
	lastHeard, elsewhere int64

	failure   error    // why it cannot follow its provider; nil if it can
	forbidden [2]error // what its role does not allow, by Right; nil for what it does
	problem   string   // the text of all that keeps it from knowing more, as last told to the sink
	logged    string   // the part of that text which is its own, as last logged

	tracker  view.Tracker
	policy   *quota.Policy     // in the view; nil if there is none that can be read
	policyAt int64             // revision of policy
	throttle protocol.Throttle // in the view; zero if there is none
	sweeping sweeping
}

// stage says what a member needs next.
//
//	toRegister --a batch writes its key, and lists--> following
//	toList     --a batch lists------------------------> following
//	following  --a gap, or too many instances---------> toList
//	toList, following --its key or its lease is gone--> toRegister
type stage int

const (
	toRegister stage = iota // it has no key
	toList                  // its key is there; what else there is must be read
	following               // the watch tells it each change
)

// NewMember returns a member that takes part in nothing yet. Subscribed adds it to the machine.
func NewMember(m *Machine, provider, folder string, sink feed.Sink) *Member {
	return &Member{m: m, Provider: provider, Folder: folder, Sink: sink}
}

// emit emits an effect for the sink, unless that is closed.
func (p *Member) emit(e Effect) {
	if !p.silent {
		p.m.emit(e)
	}
}

// take takes changes of its provider. They are kept while it is in a batch, and dropped while
// it waits for one: its listing will have them.
func (p *Member) take(keys []view.Key) {
	if p.stage != following {
		if p.batch != nil {
			p.batch.early = append(p.batch.early, keys)
		}
		return
	}
	for i := range keys {
		if keys[i].Kind == view.Instance && keys[i].ID == p.own.ID && keys[i].Revision == p.untold {
			p.untold = 0
		}
	}
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
		p.emit(Apply{p, p.m.now.Instant, c})
	}
	if len(keys) > 0 {
		p.tell(nil)
	}
	if !p.tracker.Has(p.own.ID) {
		p.lose(ErrGone)
	} else if p.tracker.Instances() > protocol.MaxInstances {
		p.stage, p.failed = toList, true
		p.tell(protocol.ErrTooMany)
		p.m.emit(Wake{})
	}
}

// noteThrottle notes the view's throttle; nil if there is none.
func (p *Member) noteThrottle(t *protocol.Throttle) {
	if p.throttle = (protocol.Throttle{}); t != nil {
		p.throttle = *t
	}
}

// notePolicy notes how long issuer keys of instances that are gone must stay by the policy in the view.
func (p *Member) notePolicy() {
	if p.policy != nil {
		p.sweeping.settle = max(p.sweeping.settle, p.policy.Settle)
	}
}

// begin starts the history from a listing.
func (p *Member) begin(l Listing, all []view.Key) {
	at := p.m.now.Instant
	if p.store != 0 && (l.Cluster != p.store || l.Revision < max(p.listed, p.policyAt)) {
		if p.policy != nil {
			p.elsewhere = p.lastHeard
		}
		p.emit(Restored{p})
	}
	p.store, p.lastHeard = l.Cluster, p.m.now.Corrected
	v := p.tracker.List(l.Revision, all)
	v.First = l.Value.First && l.Revision == l.Created
	p.policy, p.policyAt, p.since, p.listed = v.Policy, v.PolicyRevision, at.Mono, l.Revision
	p.sweeping = sweeping{}
	p.noteThrottle(v.Throttle)
	p.notePolicy()
	p.emit(Reset{p, at, p.own.ID, v})
	if p.until != 0 {
		p.emit(Announce{p, p.until})
	}
	p.tell(nil)
}

// lose notes that the incarnation is over: another follows, unless its end was announced.
func (p *Member) lose(err error) {
	p.stage, p.failed = toRegister, true
	if p.until != 0 {
		p.silence()
		return
	}
	p.tell(err)
	p.m.emit(Wake{})
}

// silence closes the sink: it issues nothing more, for good.
func (p *Member) silence() {
	p.emit(Close{p})
	p.silent = true
}

// prove passes the line's proof on.
func (p *Member) prove(proof clock.Instant) {
	if p.stage != following || proof.Mono < p.since || p.silent {
		return
	}
	p.lastHeard = p.m.now.Corrected
	p.emit(Prove{p, proof})
	if p.problem != "" {
		p.tell(nil)
	}
}

// tell notes why the member cannot follow its provider; nil if it can. The sink is told all that
// keeps the member from knowing more, if that has changed. What is its own is logged too; the
// machine and the line log theirs once for all members.
func (p *Member) tell(err error) {
	p.failure = err
	own := errors.Join(err, p.tracker.Problem(), p.forbidden[ToThrottle], p.forbidden[ToTake])
	all := errors.Join(p.m.problem(), own)
	if p.line != nil {
		all = errors.Join(all, p.line.failure)
	}
	if text := textOf(own); text != p.logged && !p.silent {
		if p.logged = text; own != nil {
			p.m.log(slog.LevelWarn, "provider has a problem", "provider", p.Provider, "problem", text)
		} else {
			p.m.log(slog.LevelInfo, "provider has recovered", "provider", p.Provider)
		}
	}
	if text := textOf(all); text != p.problem && !p.silent {
		p.problem = text
		p.emit(Trouble{p, all})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// EndAt returns the end of this instance that comes nearest to an instant: not before it begins
// to take part.
func (p *Member) EndAt(at time.Time) time.Time {
	if at.Before(p.own.Value.From) {
		return p.own.Value.From
	}
	return at
}

// Own returns the incarnation in force, or the last one. Without an ID there was none.
func (p *Member) Own() Incarnation { return p.own }

// Follows reports whether the watch tells the member each change.
func (p *Member) Follows() bool { return p.stage == following }

// Silent reports whether the sink is closed.
func (p *Member) Silent() bool { return p.silent }

// Until returns the end that was announced, in corrected Unix nanoseconds; 0 if none was.
func (p *Member) Until() int64 { return p.until }

// Policy returns the policy in the view; nil if there is none that can be read. It is never changed.
func (p *Member) Policy() *quota.Policy { return p.policy }

// Throttle returns the throttle in the view, with the revision of its key; zero if there is none.
func (p *Member) Throttle() (t protocol.Throttle, revision int64) {
	return p.throttle, p.tracker.Revision(view.Throttle)
}

// Has reports whether an instance is in the view.
func (p *Member) Has(id string) bool { return p.tracker.Has(id) }

// IDs returns the instances in the view.
func (p *Member) IDs() []string { return p.tracker.IDs() }

// Newest returns the cluster that is followed, and the newest revision of it that is known; false if
// the member follows nothing now.
func (p *Member) Newest() (cluster uint64, revision int64, follows bool) {
	if p.line == nil || p.stage != following {
		return 0, 0, false
	}
	return p.line.history.Cluster(), p.line.history.Newest(), true
}

// Standing is what may be taken of long limits depends on, beside the limit.
type Standing struct {
	ID        string        // of the incarnation
	Policy    int64         // revision of the policy in the view; 0 without one
	Instances int64         // in the view
	Cluster   uint64        // ID of the cluster that is followed; 0 if there is none yet
	Elsewhere int64         // corrected Unix nanoseconds at which another store last told of the provider; 0 if none did
	Fresh     bool          // the view is proved recent
	Bound     time.Duration // on the errors of all clocks
}

// Standing returns what counts at a monotonic instant.
func (p *Member) Standing(now int64) Standing {
	s := Standing{ID: p.own.ID, Policy: p.policyAt, Instances: int64(p.tracker.Instances()), Elsewhere: p.elsewhere, Fresh: p.fresh(now), Bound: quota.MaxSettle}
	if p.line != nil {
		s.Cluster = p.line.history.Cluster()
	}
	if p.policy != nil {
		s.Bound = p.policy.ClockError
	}
	return s
}

// fresh reports whether the view is proved to be recent at a monotonic instant.
func (p *Member) fresh(now int64) bool {
	return p.stage == following && p.line.proved != 0 && p.line.proved >= p.since && now-p.line.proved < int64(p.freshness())
}

// freshness returns how old a proof may be before nothing is issued.
func (p *Member) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
