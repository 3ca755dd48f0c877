// Package session decides what a process does as an instance of its providers: when it registers,
// lists and follows, what its views prove, and when it has to start over.
//
// It is pure. Package coordinator tells a Machine what has happened (an Event) and when. Step returns
// what is to be done (the effects), and package coordinator does it: it has the clock, the locks, the
// goroutines and etcd's client.
//
// The parts of a Machine are its lines, each of which is a watch of etcd, and its members, one for
// each provider. A line has the members whose keys its watch tells of.
//
// Nothing here is safe for concurrent use. The caller holds one lock while it calls a Machine, a Line
// or a Member.
package session

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
)

// Machine is the state of a session: what it knows of the store, and of its own part in each provider.
// Make one with New.
type Machine struct {
	folder   string             // in etcd, of all providers; it ends with a slash
	members  map[string]*Member // by provider
	lines    map[string]*Line   // by the folder that is watched
	narrow   bool               // the account may read single providers only: each has its own line
	gaps     bool               // a watch may have lost events since the session began
	lease    Lease              // the one in force; zero while there is none
	problems map[string]error   // what ails all providers, by its cause: a member of etcd, the lease, writes
	closed   bool               // the session is closing: a lost lease is no news

	now     Instant  // of the step under way
	effects []Effect // of the step under way
}

// New returns the machine of a session that has begun nothing yet. folder is where the keys of all
// providers are. The first event is Opened.
func New(folder string) *Machine {
	return &Machine{folder: folder, members: map[string]*Member{}, lines: map[string]*Line{}, problems: map[string]error{}}
}

// Instant is a reading of the clock.
type Instant struct {
	clock.Instant
	Corrected int64 // wall time in Unix nanoseconds, by what was measured of true time
}

// Lease is a lease of etcd. Its only use is that etcd removes the keys of a dead process: no share
// depends on when it ends. The zero Lease is none.
type Lease struct {
	ID  int64
	TTL time.Duration
}

// Event is something that has happened: one of this package's types whose comment begins so.
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

// Shut is an event: the session ends. Its members follow, each by Closing.
type Shut struct{}

func (Shut) on(m *Machine) { m.closed = true }

// Subscribed is an event: this process is to take part in a provider.
type Subscribed struct{ *Member }

func (e Subscribed) on(m *Machine) {
	m.members[e.Provider] = e.Member
	m.attach(e.Member)
	e.tell(e.failure) // the session's problem too
	m.emit(Wake{})
}

// Unsubscribed is an event: a member has no users any more.
type Unsubscribed struct{ *Member }

func (e Unsubscribed) on(m *Machine) {
	delete(m.members, e.Provider)
	l := e.line
	if l == nil {
		return
	}
	delete(l.members, e.Folder) // a batch under way still finds the line in the member
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

// attach gives a member its line: the one of all providers or, for an account that may read single
// providers only, one of its own.
func (m *Machine) attach(p *Member) {
	if p.stage == following {
		p.stage = toList // its next watch begins at the present
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

// forget removes a line. Answers that are still under way to it change nothing.
func (m *Machine) forget(l *Line) {
	l.open, l.begun = false, false
	delete(m.lines, l.Folder)
	m.emit(Forget{l})
}

// Leased is an event: the session has a lease, or none if that is zero.
type Leased struct{ Lease }

func (e Leased) on(m *Machine) {
	m.lease = e.Lease
	m.emit(Wake{})
	for _, p := range m.all() {
		if e.Lease == (Lease{}) && p.stage != toRegister && !m.closed {
			p.lose(errLease)
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
		m.log(slog.LevelWarn, "all providers have a problem", "of", e.Of, "providers", len(m.members), "problem", e.Err)
	}
	for _, p := range m.all() {
		p.tell(p.failure)
	}
}

// problem returns the problems of all providers in one error; nil if there is none.
func (m *Machine) problem() error {
	var errs []error
	for _, of := range slices.Sorted(maps.Keys(m.problems)) {
		errs = append(errs, m.problems[of])
	}
	return errors.Join(errs...)
}

// WatchOpened is an event: a line's next watch is being opened.
type WatchOpened struct{ *Line }

func (e WatchOpened) on(*Machine) { e.open, e.behind = true, 0 }

// WatchAnswer is an event: the open watch of a line has told something.
type WatchAnswer struct {
	*Line
	Created  bool   // it says that etcd has created the watch
	Progress bool   // it says that all is told up to Revision
	Revision int64  // of the answer's header
	Cluster  uint64 // ID of the cluster that answers
	Told     []Told
	Newest   int64 // revision of the newest change, also of one that is about no member; 0 without changes
}

// Told has the changes of one answer that are about one member, in order.
type Told struct {
	*Member
	Keys []view.Key
}

func (e WatchAnswer) on(m *Machine) {
	l, n := e.Line, 0
	switch {
	case !l.open: // it may be of a store that was replaced
		return
	case l.begun && e.Cluster != l.history.Cluster():
		l.gap("etcd was restored or replaced: another cluster answered")
		return
	case e.Created && !l.begun:
		l.history.Begin(e.Revision, e.Cluster)
		l.begun = true
		m.emit(Wake{})
		return
	case e.Progress:
		l.history.Progress(e.Revision)
	}
	for _, t := range e.Told {
		t.take(t.Keys)
		n += len(t.Keys)
	}
	l.history.Progress(e.Newest)
	l.prove()
	if held := m.HoldBack(); l.latest.changes(n, m.now.Mono, held) && l.open {
		l.unwatch(held)
	}
}

// WatchEnded is an event: a line's watch has ended, by itself or as Unwatch demands.
type WatchEnded struct {
	*Line
	Err    error // why; nil if the session has ended it
	Denied bool  // the account may not read the folder
	Gap    bool  // the next watch cannot go on where this one was
}

func (e WatchEnded) on(m *Machine) {
	l := e.Line
	l.open = false // there is none to ask for its progress
	switch {
	case e.Gap:
		l.gap(e.Err.Error())
	case e.Denied && l.Folder == m.folder:
		m.narrow, m.gaps = true, m.gaps || l.begun // each provider gets a line of its own
		m.forget(l)
		for _, p := range m.all() {
			m.attach(p)
		}
	case e.Err != nil:
		l.fail(e.Err)
	}
}

// ProbeLate is an event: a probe has had no answer for a while. If etcd is slow, asking for the
// watch's progress only after the answer would take a second round trip. So it is asked for while
// the read is under way.
type ProbeLate struct{ Question }

func (e ProbeLate) on(m *Machine) {
	for _, a := range e.lines {
		a.askProgress()
	}
}

// ProbeAnswered is an event: etcd has answered a question.
type ProbeAnswered struct {
	Question
	Revision int64  // of the store that answers
	Cluster  uint64 // its ID
	Created  int64  // revision at which the mark was created there; 0 if it is not there
}

func (e ProbeAnswered) on(*Machine) {
	o, missing := e.Owner, e.Created != e.Mark.Created
	switch {
	case missing && (o.own.ID != e.Mark.ID || o.stage != following):
		return // its deletion is known
	case missing && o.line.history.Position() < e.Revision && e.Cluster == o.line.history.Cluster():
		o.line.askProgress() // its watch may be about to say so
		return
	}
	for _, a := range e.lines {
		switch {
		case a.gen != a.Line.gen:
		case missing:
			a.gap("the newest key of this session is not in etcd as it was written")
		case a.history.Answer(a.probe, e.Revision, e.Cluster):
			a.gap("etcd was restored or replaced: a read returned an older revision, or another cluster answered")
		default:
			a.prove()
			a.lag()
		}
	}
}

// ProbeFailed is an event: a probe has had no answer. The members are told why nothing is proved,
// once that has lasted for as long as a proof counts.
type ProbeFailed struct{ Err error }

func (e ProbeFailed) on(m *Machine) {
	for _, l := range Sorted(m.lines) {
		if l.failure == nil && l.proved != 0 && m.now.Mono-l.proved > int64(freshness(l.members)) && !m.closed {
			l.fail(e.Err)
		}
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

// Asked is an event: etcd has answered a write that a role may not allow.
type Asked struct {
	*Member
	Right  Right
	Err    error // nil if the write was taken
	Denied bool  // Err says that the role does not allow it
}

func (e Asked) on(*Machine) {
	forbidden := &e.forbidden[e.Right]
	switch {
	case e.Denied:
		*forbidden = fmt.Errorf("%w; create its role again: quota-admin roles consumer %s", e.Err, e.Provider)
	case e.Err != nil || *forbidden == nil:
		return
	default:
		*forbidden = nil
	}
	e.tell(e.failure)
}

// Closing is an event: a member's sink is to issue nothing more, at once.
type Closing struct{ *Member }

func (e Closing) on(*Machine) { e.silence() }

// Ending is an event: a member that has a policy is to announce its end.
type Ending struct{ *Member }

// on finds the end. The sink is bound from the moment of sending on, whether or not the
// write commits.
func (e Ending) on(m *Machine) {
	held := heldBack(e.tracker.Instances(), e.policy) // watches may be closed for a little
	e.until = e.EndAt(protocol.LastWindow(m.now.Corrected+int64(held), e.policy)).UnixNano()
	e.emit(Announce{e.Member, e.until})
}

// all returns the members by provider.
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

// Closed reports whether the session is ending.
func (m *Machine) Closed() bool { return m.closed }

// Narrow reports whether the account may read single providers only.
func (m *Machine) Narrow() bool { return m.narrow }

// Lease returns the lease in force; zero if there is none.
func (m *Machine) Lease() Lease { return m.lease }

// Largest returns the number of instances in the largest fleet that a member sees.
func (m *Machine) Largest() (instances int) {
	for _, p := range m.members {
		instances = max(instances, p.tracker.Instances())
	}
	return instances
}

// Freshness returns how old a proof may be before some member issues nothing: the least that any
// policy demands.
func (m *Machine) Freshness() time.Duration { return freshness(m.members) }
