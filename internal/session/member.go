package session

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Member is what a session knows of one provider, and of its own part in it. Make one with NewMember.
type Member struct {
	m        *Machine
	Provider string
	Folder   string    // of the provider's keys in etcd; it ends with a slash
	Sink     feed.Sink // hears the effects about this member; the machine itself never calls it

	line   *Line    // whose watch tells of the provider; nil beyond MaxLines
	stage  stage    // what it needs next
	batch  *Joining // its part in the batch that it is in; nil if it is in none
	failed bool     // it could not follow, or can no longer: NextBatch leaves it out until the session's back-off is over
	seats  int64    // how many instances the provider was to have when this one registered last; 0 before
	silent bool     // Close was emitted, and no effect for the sink comes any more

	own    Incarnation // in force, or the last one; without an ID there was none
	until  int64       // from when it takes no part, as announced, in corrected Unix nanoseconds; 0 if it has announced no end
	untold int64       // revision at which it has written own.Key; 0 once the watch has told of that

	followed
	// since is the monotonic instant at which the newest listing was taken over. A probe that was sent
	// before that proves nothing of its view.
	since int64

	failure   error    // why it cannot follow its provider; nil if it can
	forbidden [2]error // by Right: why etcd refuses the write; nil while the role is not known to lack the right
	problem   string   // the text of all that keeps it from knowing more, as last told to the sink
	logged    string   // the part of that text which is its own, as last logged

	tracker  view.Tracker      // turns keys that were listed or told into the view
	policy   *quota.Policy     // the last one since the listing that could be read; nil if there is none, or it was deleted
	policyAt int64             // revision at which the view got policy or lost it; 0 if the listing had none
	bound    time.Duration     // clock_error of the newest policy that it has known, in any store; before one the largest of any
	throttle protocol.Throttle // in the view; zero if there is none that can be read
	sweeping sweeping          // what it knows of issuer keys that were left behind: see sweep.go
}

// followed is in which store, and how far, this process has followed a provider. The Machine keeps it when the provider is
// unsubscribed, for the next Member that follows the same provider.
type followed struct {
	store uint64 // ID of the cluster that was listed; 0 before the first listing
	// known is the revision of the newest listing or, once the member has left its line (leaves), the newest one of the
	// store that the line knew. If the next listing has a lower one, the store went back.
	known int64
	// wentBack says that the store was seen to go back since the newest listing. The next listing may have a higher
	// revision than known all the same.
	wentBack bool
	// lastHeard is when the store last told of the provider, by a listing or a proof, while that had a policy or had
	// lost it since the listing. If a later listing shows another store, or that this one went back, elsewhere keeps
	// that instant. Both are in corrected Unix nanoseconds, and 0 before.
	lastHeard, elsewhere int64
}

// leaves notes how new the store was by the history of a line, as that ends, or no longer tells of the provider. back says
// that the store has been seen to go back.
func (f *followed) leaves(h *view.Line, back bool) {
	if h.Cluster() == f.store { // else it is another store than the one that was listed
		f.known, f.wentBack = max(f.known, h.Newest()), f.wentBack || back
	}
}

// stage says what a member needs next. Registering includes listing; a batch does both (batch.go).
//
//	toRegister --a batch has written its key and listed-------------> following
//	toRegister --the same, but a gap or another line came meanwhile-> toList
//	toList     --a batch has listed---------------------------------> following
//	toList     --a batch finds its key gone-------------------------> toRegister
//	following  --a gap, another line, or too many instances---------> toList
//	following  --the watch tells that its key is gone---------------> toRegister
//	any        --the lease is gone----------------------------------> toRegister
type stage int

const (
	toRegister stage = iota // it has no key
	toList                  // its key is there; what else there is must be read
	following               // the watch tells it each change
)

// NewMember returns a member that takes part in nothing yet. Subscribed adds it to the machine.
func NewMember(m *Machine, provider, folder string, sink feed.Sink) *Member {
	return &Member{m: m, Provider: provider, Folder: folder, Sink: sink, bound: quota.MaxSettle}
}

// emit emits an effect for the sink; nothing once Close was emitted.
func (p *Member) emit(e Effect) {
	if !p.silent {
		p.m.emit(e)
	}
}

// Troubled is an event: a member's listing fails for now, and is tried again.
type Troubled struct {
	*Member
	Err error
}

func (e Troubled) on(*Machine) { e.tell(e.Err) }

// Right is something that a consumer's role may lack.
type Right int

// The rights that roles of earlier versions lack.
const (
	ToThrottle Right = iota // to write the throttle
	ToTake                  // to take permits of long limits
)

// WriteAnswered is an event: etcd has answered a write for which a consumer's role may lack the right.
type WriteAnswered struct {
	*Member
	Right  Right
	Err    error // nil if etcd has taken the write
	Denied bool  // Err says that the role lacks the right
}

func (e WriteAnswered) on(*Machine) {
	forbidden := &e.forbidden[e.Right]
	switch {
	case e.Denied && !errors.Is(e.Err, cause.ErrLogin) && !errors.Is(e.Err, cause.ErrToken): // those say nothing about a role
		*forbidden = e.denied(e.Err)
	case e.Err != nil || *forbidden == nil: // another error says nothing about the right
		return
	default:
		*forbidden = nil
	}
	e.tell(e.failure)
}

// denied returns an error by which etcd has refused to let this process take part, with what to do.
func (p *Member) denied(err error) error {
	return fmt.Errorf("%w; %s", err, cause.Admit(err, p.Provider))
}

// Closing is an event: a member's sink is closed now, and issues nothing more.
type Closing struct{ *Member }

func (e Closing) on(*Machine) { e.silence() }

// Ending is an event: a member is about to announce its end, by a write into its key. It has a policy,
// and has announced no end before. Until returns the end from now on.
type Ending struct{ *Member }

// on sets the end, late enough that all others will know of it by then. Its own sink obeys it at once:
// even if the write seems to fail, others may have read it.
func (e Ending) on(m *Machine) {
	held := heldBack(e.tracker.Instances(), e.policy) // their watches may be closed for so long
	e.until = e.EndAt(protocol.LastWindow(m.now.Corrected+int64(held), e.policy)).UnixNano()
	e.emit(Announce{e.Member, e.until})
}

// noteThrottle takes the view's throttle over; nil if there is none.
func (p *Member) noteThrottle(t *protocol.Throttle) {
	if p.throttle = (protocol.Throttle{}); t != nil {
		p.throttle = *t
	}
}

// notePolicy takes over the bound of the policy in the view, and has the sweeping go by its settle time, if that is longer
// than those of the policies before it.
func (p *Member) notePolicy() {
	if p.policy != nil {
		p.bound = p.policy.ClockError
		p.sweeping.settle = max(p.sweeping.settle, p.policy.Settle)
	}
}

// begin starts the history of views anew, with the keys that a listing has found. If etcd is another store
// than the one that was listed before, or went back, the sink hears Restored before the view.
func (p *Member) begin(l Listing, all []view.Key) {
	at := p.m.now.Instant
	if p.store != 0 && (l.Cluster != p.store || p.wentBack || l.Revision < p.known) {
		p.elsewhere = p.lastHeard
		p.emit(Restored{p})
	}
	p.store = l.Cluster
	v := p.tracker.List(l.Revision, all)
	v.First = l.Value.First && l.Revision == l.Created // else others may have committed something in between
	p.policy, p.policyAt, p.since, p.known, p.wentBack = v.Policy, v.PolicyRevision, at.Mono, l.Revision, false
	p.sweeping = sweeping{}
	p.hear()
	p.noteThrottle(v.Throttle)
	p.notePolicy()
	p.emit(Reset{p, at, p.own.ID, v})
	if p.until != 0 { // it binds the new history too
		p.emit(Announce{p, p.until})
	}
	p.tell(nil)
}

// hear notes that the store tells of the provider now.
func (p *Member) hear() {
	if p.policyAt != 0 {
		p.lastHeard = p.m.now.Corrected
	}
}

// leaves notes that the watch of the member's line will tell it nothing more: the line has a gap, or the member gets
// another one. So a member that followed is listed again. Whatever the member waits for, it keeps how new the store was.
func (p *Member) leaves(back bool) {
	if p.stage == following {
		p.stage = toList
	}
	p.followed.leaves(&p.line.history, back)
}

// lose notes that the incarnation is over: it has lost its key or its lease. The member registers again as
// another one after the session's back-off. If its end was announced, its sink is closed instead.
func (p *Member) lose(err error) {
	p.stage, p.failed = toRegister, true
	if p.until != 0 {
		p.silence()
		return
	}
	p.tell(err)
	p.m.emit(Wake{})
}

// registered notes which incarnation is in force. One under the lease of the one before says that the key was
// lost alone.
func (p *Member) registered(i Incarnation) {
	if p.own.ID != "" && i.ID != p.own.ID && i.Lease == p.own.Lease {
		p.m.log(slog.LevelWarn, "this instance's key was gone from etcd, and its lease was not; it has registered again", "provider", p.Provider, "key", p.own.Key)
	}
	p.own = i
}

// silence closes the sink for good.
func (p *Member) silence() {
	p.emit(Close{p})
	p.silent = true
}

// prove passes a proof of the line on to the sink. It does not if the member does not follow, or if the
// probe was sent before its listing was taken over.
func (p *Member) prove(proof clock.Instant) {
	if p.stage != following || proof.Mono < p.since || p.silent {
		return
	}
	p.hear()
	p.emit(Prove{p, proof})
	if p.problem != "" { // it may be over
		p.tell(nil)
	}
}

// tell notes why the member cannot follow its provider; nil if it can. With p.failure it only looks at the
// rest again.
//
// It tells the sink all that keeps the member from knowing more, if that has changed: the member's own
// problems and those of its line and of the machine. Its own are this error, keys that cannot be read, and
// rights that its role lacks. It logs them; the line and the machine log theirs once for all members. A
// lease that has ended is the machine's, and takes the member's key along: see Leased and registered.
func (p *Member) tell(err error) {
	p.failure = err
	rest := cause.Together(p.tracker.Problem(), p.forbidden[ToThrottle], p.forbidden[ToTake])
	all := cause.Together(p.m.problem(), err, rest)
	if p.line != nil {
		all = cause.Together(all, p.line.failure)
	}
	if errors.Is(err, ErrLease) || errors.Is(err, ErrGone) {
		err = nil
	}
	own := cause.Together(err, rest)
	if text := textOf(own); text != p.logged && !p.silent {
		if p.logged = text; text != "" {
			args := []any{"provider", p.Provider, "problem", text}
			do := cause.Command(text)
			if do == "" && (errors.Is(own, cause.ErrDenied) || errors.Is(own, cause.ErrAway)) {
				do = cause.Remedy(own)
			}
			if do != "" {
				args = append(args, "do", do)
			}
			p.m.log(slog.LevelWarn, "provider has a problem", args...)
		} else {
			p.m.log(slog.LevelInfo, "the provider's problem is over; its limiter says when it has a share", "provider", p.Provider)
		}
	}
	if text := textOf(all); text != p.problem && !p.silent {
		p.problem = text
		p.emit(Trouble{p, all})
	}
}

// textOf returns an error's text; empty for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// EndAt returns the instant from which this instance takes no part if it is to end at the instant at: that,
// or when it begins to take part if that is later.
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

// Policy returns the policy in the view: the last one since the listing that could be read. It is nil if
// there is none, or it was deleted. What it points to never changes.
func (p *Member) Policy() *quota.Policy { return p.policy }

// Throttle returns the throttle in the view, zero if there is none that can be read, and the revision of
// its key, 0 if there is none.
func (p *Member) Throttle() (t protocol.Throttle, revision int64) {
	return p.throttle, p.tracker.Revision(view.Throttle)
}

// Has reports whether the instance with an ID is in the view.
func (p *Member) Has(id string) bool { return p.tracker.Has(id) }

// IDs returns the instances in the view, by their IDs, in no order.
func (p *Member) IDs() []string { return p.tracker.IDs() }

// Newest returns the ID of the cluster that is followed, and the newest revision of it that is known.
// follows is false if the member does not follow now.
func (p *Member) Newest() (cluster uint64, revision int64, follows bool) {
	if p.line == nil || p.stage != following {
		return 0, 0, false
	}
	return p.line.history.Cluster(), p.line.history.Newest(), true
}

// Standing is what a member knows when permits of a long limit are to be taken from etcd. Beside the limit
// it decides whether they may be taken, and how many.
type Standing struct {
	ID string // of the incarnation
	// Policy is the revision at which the view got its policy or lost it. It is 0 if the newest listing had
	// no policy and none was written since.
	Policy    int64
	Instances int64  // in the view
	Cluster   uint64 // ID of the cluster that the line follows, or followed before a gap; 0 if none yet
	// Elsewhere is when the provider was last heard of before a restore: in another store, or in this one
	// before it went back. In corrected Unix nanoseconds; 0 if that never happened.
	Elsewhere int64
	Fresh     bool // the view's proof is as recent as the policy's freshness demands
	// Bound is on the error of each instance's clock: that of the newest policy known, also where a restore has lost it.
	Bound time.Duration
}

// Standing returns what counts at a monotonic instant, in nanoseconds.
func (p *Member) Standing(now int64) Standing {
	s := Standing{ID: p.own.ID, Policy: p.policyAt, Instances: int64(p.tracker.Instances()), Elsewhere: p.elsewhere, Fresh: p.fresh(now), Bound: p.bound}
	if p.line != nil {
		s.Cluster = p.line.history.Cluster()
	}
	return s
}

// fresh reports whether the view's proof, at a monotonic instant, is as recent as the policy's freshness
// demands.
func (p *Member) fresh(now int64) bool {
	return p.stage == following && p.line.proved != 0 && p.line.proved >= p.since && now-p.line.proved < int64(p.freshness())
}

// freshness returns how old a proof may be before the view is stale: by the policy or, without one, by
// default. Under the outage rule stop nothing is issued then.
func (p *Member) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
