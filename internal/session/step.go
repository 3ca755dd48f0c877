// Package session decides what this process does in etcd to take part in its providers: when it
// writes, lists and watches keys, how recent its knowledge is proved to be, and when it starts over.
//
//   - A provider is an API whose limit all its instances share. It has a folder of keys in etcd: its
//     policy, the pauses that it asked for (the throttle), documents with the limits of single customers
//     (the overrides), and one key for each instance.
//   - An instance is a process that takes part in a provider. It registers: it writes its key, under
//     the session's lease. If it loses the key, it registers again under another ID: as another
//     incarnation.
//   - A view is what the keys of one provider were at one revision of etcd. A process lists (reads) all
//     of them once. From there it follows the watch, which tells every later change.
//   - A probe is a read of etcd by which the views are proved recent: once the watch has told all up to
//     the revision that the read returned, they have all that was committed before it was sent.
//   - etcd (the store) is restored when its operators put a backup, or another etcd, in its place. What
//     was committed after the backup is lost.
//   - A gap is found where a watch may have lost events, or where etcd was restored. The process then
//     lists again.
//
// A Machine does no I/O, reads no clock and starts no goroutine. Package coordinator tells it what has
// happened (an Event) and when. Step changes the Machine's memory and returns what is to be done (the
// effects); package coordinator does that.
//
// A Machine has lines (line.go), each of which follows a folder by a watch, and members (member.go), one for each
// provider. A line has the members whose keys its watch tells of. Members register and list in batches.
// The events that change one member alone are in member.go, those of batches in batch.go, and all
// others here: so what becomes of an answer of a watch, for the line and for its members, is in this
// file. The effects are in effect.go.
//
// Nothing here is safe for concurrent use. The caller holds one lock while it calls a Machine, a Line
// or a Member.
package session

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session/view"
)

// Machine is the state of a session: what it knows of the store, and of its own part in each provider.
// Make one with New.
type Machine struct {
	folder   string               // in etcd, of all providers; it ends with a slash
	members  map[string]*Member   // by provider
	left     map[string]*followed // of the providers that were unsubscribed and had a policy, by provider
	lines    map[string]*Line     // by the folder that is watched
	narrow   bool                 // the etcd user may read single providers only: each has its own line, up to MaxLines
	gaps     bool                 // a watch may have lost events since the session began
	lease    Lease                // the one in force; zero while there is none
	problems map[string]error     // what ails all providers, by its cause: an etcd server, the lease, writes
	closed   bool                 // the session is closing: members are told neither of a lost lease nor of failed probes
	missed   missed

	now     Instant  // of the step under way
	effects []Effect // of the step under way
}

// missed is the incarnation whose key a probe has found missing, without its watch having told why. The probes ask for
// this key while the incarnation is in force and follows: see ProbeAnswered. It is cleared when a probe finds the key for
// which it asked, whichever incarnation that is of, and replaced when a probe misses the key of another incarnation.
// Once this incarnation is over, no probe asks for its key any more. The zero missed is none.
type missed struct {
	id       string // of the incarnation
	revision int64  // of the store in the first answer that said so
}

// New returns the machine of a session that has begun nothing yet. folder is where the keys of all
// providers are. The first event is Opened.
func New(folder string) *Machine {
	return &Machine{folder: folder, members: map[string]*Member{}, left: map[string]*followed{}, lines: map[string]*Line{}, problems: map[string]error{}}
}

// Instant is a reading of the clock.
type Instant struct {
	clock.Instant
	Corrected int64 // wall time in Unix nanoseconds, corrected by the clock's measured error
}

// Lease is a lease of etcd. When the lease of a dead process ends, etcd removes the instance keys of that process, which
// are written under it, and others get its shares, which nobody uses until then. No promise depends on when a lease ends.
// The zero Lease is none.
type Lease struct {
	ID  int64
	TTL time.Duration
}

// Event is something that has happened: one of the types of this package whose comment says "is an
// event".
type Event interface {
	// on changes the machine, and emits effects.
	on(m *Machine)
}

// Step takes an event that has happened at an instant. It returns what is to be done now, in order.
func (m *Machine) Step(e Event, now Instant) []Effect {
	m.now, m.effects = now, nil
	e.on(m)
	return m.effects
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

func (m *Machine) log(level slog.Level, text string, args ...any) { m.emit(Log{level, text, args}) }

// Opened is an event: the session begins.
type Opened struct{}

func (Opened) on(m *Machine) { m.newLine(m.folder) }

// Shut is an event: the session is closing. A Closing of each member follows; other
// events may come between.
type Shut struct{}

func (Shut) on(m *Machine) { m.closed = true }

// Subscribed is an event: this process is to take part in a provider.
type Subscribed struct{ *Member }

func (e Subscribed) on(m *Machine) {
	m.members[e.Provider] = e.Member
	if was := m.left[e.Provider]; was != nil {
		e.followed = *was
		delete(m.left, e.Provider)
	}
	m.attach(e.Member)
	e.tell(e.failure) // tells the sink what ails all providers
	m.emit(Wake{})
}

// Unsubscribed is an event: nobody in this process uses a member's provider any more.
type Unsubscribed struct{ *Member }

// on removes the member, and keeps what it has followed. If its line was for it alone, that goes too. Then a member that
// had no line, because there were MaxLines, gets one.
func (e Unsubscribed) on(m *Machine) {
	delete(m.members, e.Provider)
	l := e.line
	if was := e.followed; was.lastHeard != 0 {
		if m.left[e.Provider] = &was; l != nil {
			was.leaves(&l.history, false)
		}
	}
	if l == nil {
		return
	}
	delete(l.members, e.Folder) // but e.line stays: a batch under way looks at it when it ends
	if !m.narrow {
		return
	}
	m.forget(l)
	for _, next := range m.all() {
		if next.line == nil {
			m.attach(next)
			break
		}
	}
}

// attach gives a member its line: the one of all providers or, for an etcd user that may read single
// providers only, one of its own. Beyond MaxLines it has none, and is told so.
func (m *Machine) attach(p *Member) {
	if p.line != nil {
		p.leaves(false) // the new line's watch begins at the present: it does not tell what came before
	}
	folder := m.folder
	if m.narrow {
		folder = p.Folder
	}
	if p.line = m.lines[folder]; p.line == nil && len(m.lines) == MaxLines {
		p.tell(errLines)
		return
	} else if p.line == nil {
		p.line = m.newLine(folder)
	}
	p.line.members[p.Folder] = p
}

// newLine adds the line of a folder.
func (m *Machine) newLine(folder string) *Line {
	l := &Line{m: m, Folder: folder, members: map[string]*Member{}}
	m.lines[folder] = l
	m.emit(Follow{l})
	return l
}

// leave is called when the line of all providers ends or has a gap. For each provider that was unsubscribed it notes the
// newest revision of the store that this line knew. back says that the store has been seen to go back.
func (m *Machine) leave(l *Line, back bool) {
	for _, was := range m.left {
		was.leaves(&l.history, back)
	}
}

// forget removes a line. Answers that are still under way to it change nothing.
func (m *Machine) forget(l *Line) {
	l.open, l.begun = false, false
	delete(m.lines, l.Folder)
	m.emit(Forget{l})
}

// Leased is an event: the session has got a lease. The zero Lease says that it has lost the one it had, and the
// keys of its members with that; Err says why it could not be renewed, if etcd has said so. Then each member registers again. A member that had announced its end does
// not: its sink is closed. If the session is closing, the members do nothing.
type Leased struct {
	Lease
	Err error
}

func (e Leased) on(m *Machine) {
	if e.Lease == (Lease{}) && !m.closed {
		m.log(slog.LevelWarn, "the lease has ended in etcd; registering again", "lease", m.lease.ID, "providers", len(m.members), "do", cause.Remedy(e.Err))
	}
	m.lease = e.Lease
	m.emit(Wake{})
	for _, p := range m.all() {
		if e.Lease == (Lease{}) && p.stage != toRegister && !m.closed {
			p.lose(ErrLease)
		}
	}
}

// Problem is an event: something ails all providers, or no longer does if Err is nil. Of names the
// cause; a cause has one problem at a time.
type Problem struct {
	Of  string
	Err error
}

func (e Problem) on(m *Machine) {
	if textOf(m.problems[e.Of]) == textOf(e.Err) {
		return
	}
	if e.Err == nil {
		delete(m.problems, e.Of)
		m.log(slog.LevelInfo, "recovered", "of", e.Of)
	} else {
		m.problems[e.Of] = e.Err
		m.log(slog.LevelWarn, "all providers have a problem", "of", e.Of, "providers", len(m.members), "problem", e.Err,
			"do", e.remedy())
	}
	for _, p := range m.all() {
		p.tell(p.failure)
	}
}

// remedy is what to do about the problem.
func (e Problem) remedy() string {
	if errors.Is(e.Err, cause.ErrAway) || errors.Is(e.Err, cause.ErrDenied) {
		return cause.Remedy(e.Err)
	}
	return "quota-admin doctor finds the cause"
}

// problem returns the problems of all providers in one error; nil if there is none.
func (m *Machine) problem() error {
	var errs []error
	for _, of := range slices.Sorted(maps.Keys(m.problems)) {
		errs = append(errs, m.problems[of])
	}
	return cause.Together(errs...)
}

// WatchOpened is an event: a line's next watch is being opened.
type WatchOpened struct{ *Line }

func (e WatchOpened) on(m *Machine) {
	if m.lines[e.Folder] == e.Line { // else it was forgotten meanwhile
		e.open, e.behind = true, 0
	}
}

// WatchAnswer is an event: a watch of a line has answered. An answer says that the watch was created, or
// how far it has told, or has changes.
type WatchAnswer struct {
	*Line
	Created bool // etcd has created the watch
	// Progress says that all changes up to Revision were told.
	Progress bool
	// Revision is that of the store when it answered. It says how far the watch has told if Progress is set,
	// or if this is the answer Created of a watch that begins at the present. In other answers it does not:
	// changes up to Revision may still come.
	Revision int64
	Cluster  uint64 // ID of the cluster that answers
	Told     []Told // the changes that are about members
	// Newest is the revision of the newest change in this answer, also of one about no member: the
	// watch has told all up to it. It is 0 without changes.
	Newest int64
}

// Told has the changes of one answer that are about one member, in order.
type Told struct {
	*Member
	Keys []view.Key
}

func (e WatchAnswer) on(m *Machine) {
	l, n := e.Line, 0
	switch {
	case !l.open: // this watch was ended: what it tells may be of before a restore
		return
	case l.begun && e.Cluster != l.history.Cluster():
		l.replaced(e.Cluster, "another cluster answered")
		return
	case e.Created && !l.begun: // it was opened at the present, which is Revision
		l.history.Begin(e.Revision, e.Cluster)
		l.begun = true
		if l.failure != nil { // etcd answers again; what the members have missed comes with their listings
			l.fail(nil)
		}
		m.emit(Wake{})
		return
	case e.Progress:
		l.history.Progress(e.Revision)
	}
	for _, t := range e.Told {
		t.take(t.Keys)
		n += len(t.Keys)
	}
	l.history.Progress(e.Newest) // not before the members have these changes: a proof is about views that have them
	l.prove()
	// In a rush of changes the watch is closed for a little while: see rush.go.
	if held := m.HoldBack(); l.latest.changes(n, m.now.Mono, held) && l.open {
		l.unwatch(held)
	}
}

// take takes the changes of the provider's keys in one answer of the watch. What becomes of them depends on
// the member's stage:
//
//   - A member that follows applies them to its view, one revision after the other, and has the sink told.
//     It then looks whether its own key is gone, or the instances are too many.
//   - For a member that is in a batch they are kept. They are taken after its listing.
//   - For a member that waits for a batch they are dropped: its listing will have them.
func (p *Member) take(keys []view.Key) {
	if p.stage != following {
		if p.batch != nil {
			p.batch.early = append(p.batch.early, keys)
		}
		return
	}
	for i := range keys {
		if keys[i].Kind == view.Instance && keys[i].ID == p.own.ID && keys[i].Revision == p.untold {
			p.untold = 0 // the watch has told of the key that this process has written
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
		p.tell(nil) // other keys may be unreadable now
	}
	if !p.tracker.Has(p.own.ID) {
		p.lose(ErrGone)
	} else if p.tracker.Instances() > protocol.MaxInstances {
		p.stage, p.failed = toList, true
		p.tell(protocol.ErrTooMany)
		p.m.emit(Wake{})
	}
}

// WatchEnded is an event: a line's watch has ended, by an error or because of Unwatch.
type WatchEnded struct {
	*Line
	Err    error // why it has ended; nil if Unwatch has ended it, or no reason is known
	Denied bool  // Err says that the etcd user may not read the folder
	Gap    bool  // Err says that the next watch cannot go on where this one was: events are lost
}

func (e WatchEnded) on(m *Machine) {
	l := e.Line
	l.open = false
	switch {
	case m.lines[l.Folder] != l: // it was forgotten meanwhile
	case e.Gap:
		l.gap(e.Err.Error())
	case e.Denied && l.Folder == m.folder: // one line for each provider in place of this one for all
		m.narrow, m.gaps = true, m.gaps || l.begun // if this one had begun, the new ones miss what comes until they begin
		m.leave(l, false)
		m.forget(l)
		for _, p := range m.all() {
			m.attach(p)
		}
	case e.Denied: // its member is the only one
		for _, p := range l.members {
			l.fail(p.denied(e.Err))
		}
	case e.Err != nil:
		l.fail(e.Err)
	}
}

// Reconnected is an event: connections to etcd are made anew, because etcd answered nothing. What the old
// connections still bring to the watches may come late, or never: so each open watch is opened again.
type Reconnected struct{}

func (Reconnected) on(m *Machine) {
	for _, l := range Sorted(m.lines) {
		if l.open {
			l.unwatch(reopen)
		}
	}
}

// reopen is the pause before a watch opens on a connection that is made anew. It can be short, since the watch
// then waits for the connection.
const reopen = 100 * time.Millisecond

// ProbeLate is an event: a probe has had no answer for half the time between two probes. The watches
// are then asked for their progress while the read is under way: if etcd is slow, asking only after the
// read's answer would take a second round trip.
type ProbeLate struct{ Question }

func (e ProbeLate) on(m *Machine) {
	for _, a := range e.lines {
		a.askProgress()
	}
}

// ProbeAnswered is an event: etcd has answered a Question, and said whether the witness is there. A key that was
// created at another revision than the one in the Question counts as a missing witness. The answer says nothing to a
// line that had a gap since the Question. For the other lines of the Question:
//
//   - If at least one of them follows another cluster than Cluster, or knew a newer revision than Revision when the probe
//     was sent, etcd was replaced or went back: then all of them have a gap, whatever became of the witness.
//   - If the witness is there, the answer counts for each line. Once the line's watch has told all up to Revision, the
//     answer proves its views as of when the probe was sent.
//   - If the witness is missing, and its owner still follows as the incarnation of the Question, then either the
//     owner's watch is about to tell that the key was deleted, or etcd was restored. The watch may still tell of the
//     deletion until it has told all up to the Revision of the first answer without this witness. Until then an
//     answer without it only has the watch asked for its progress, and the probes ask for this witness again. Once
//     the watch has told so much, an answer without the witness means a gap for all these lines.
//   - If the witness is missing, and its owner was unsubscribed, is another incarnation by now, or is to register or
//     list again anyway, the answer says nothing: the key may be gone without a restore.
type ProbeAnswered struct {
	Question
	Revision int64  // of the store that answers
	Cluster  uint64 // ID of the cluster that answers
	Created  int64  // revision at which the witness was created there; 0 if it is not there
}

func (e ProbeAnswered) on(m *Machine) {
	o, why := e.Owner, ""
	lines := slices.DeleteFunc(slices.Clone(e.lines), func(a probed) bool { return a.gen != a.Line.gen })
	switch {
	case slices.ContainsFunc(lines, func(a probed) bool { return a.history.WentBack(a.probe, e.Revision, e.Cluster) }):
		why = "a read returned an older revision, or another cluster answered"
	case e.Created == e.Witness.Created:
		m.missed = missed{}
	case m.members[o.Provider] != o || o.own.ID != e.Witness.ID || o.stage != following:
		return // this process has deleted the key or given it up, or will look at it again by a listing
	default:
		if m.missed.id != e.Witness.ID {
			m.missed = missed{e.Witness.ID, e.Revision}
		}
		if o.line.history.Position() < m.missed.revision {
			o.line.lag() // it may be about to tell of the deletion
			return
		}
		why = "the newest key of this session is not in it as it was written"
	}
	for _, a := range lines {
		if why != "" {
			a.replaced(e.Cluster, why)
			continue
		}
		a.history.Answer(a.probe, e.Revision)
		if a.prove(); a.history.Behind() {
			a.lag()
		}
	}
}

// ProbeFailed is an event: a probe has failed, or has had no answer in time. The members of a line are
// told so, once, when the newest proof is older than the shortest freshness of their policies. They are not
// told if the line has had no proof since it last began, or if the session is closing.
type ProbeFailed struct{ Err error }

func (e ProbeFailed) on(m *Machine) {
	for _, l := range Sorted(m.lines) {
		if l.failure == nil && l.proved != 0 && m.now.Mono-l.proved > int64(freshness(l.members)) && !m.closed {
			l.fail(e.Err)
		}
	}
}

// all returns the members in the order of their providers.
func (m *Machine) all() []*Member { return Sorted(m.members) }

// Sorted returns a map's values in the order of their keys: so what is done for each of them is
// done in the same order in each run of a test.
func Sorted[T any](of map[string]T) []T {
	all := make([]T, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[key])
	}
	return all
}

// Closed reports whether the session is closing.
func (m *Machine) Closed() bool { return m.closed }

// Narrow reports whether the etcd user may read single providers only.
func (m *Machine) Narrow() bool { return m.narrow }

// Lease returns the lease in force; zero if there is none.
func (m *Machine) Lease() Lease { return m.lease }

// Largest returns the number of instances in the largest fleet: of the provider that has the most in its
// view. It is 0 without members.
func (m *Machine) Largest() (instances int) {
	for _, p := range m.members {
		instances = max(instances, p.tracker.Instances())
	}
	return instances
}

// Freshness returns the shortest freshness of the members' policies. Once a proof is that old, some member's view is
// stale, and under the outage rule stop its sink issues nothing. A member without a policy counts with
// quota.DefaultFreshness. Without members Freshness returns the largest Duration.
func (m *Machine) Freshness() time.Duration { return freshness(m.members) }
