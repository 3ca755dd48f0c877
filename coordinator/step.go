package coordinator

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// machine is a session's state machine: what it knows of the store, and what it decides by
// that. It has no clock, lock, goroutine or client. Session.mu guards it.
type machine struct {
	folder      string // of all providers
	memberships map[string]*membership
	lines       map[string]*line // by folder
	narrow      bool             // the account may read only some providers
	gaps        bool             // a watch that had begun has missed something, or may have
	lease       *lease           // nil while there is none
	problems    map[string]error // by owner: a member of etcd, or the lease
	closed      bool

	now     instant // of the step
	effects []effect
}

func newMachine(folder string) machine {
	return machine{folder: folder, memberships: map[string]*membership{}, lines: map[string]*line{}, problems: map[string]error{}}
}

// instant is a reading of the clock.
type instant struct {
	clock.Instant
	wall int64 // corrected
}

// event is something that has happened. on decides what follows.
type event interface{ on(m *machine) }

// step takes an event at an instant. It returns what the session does then, in order.
func (m *machine) step(e event, now instant) []effect {
	m.now, m.effects = now, nil
	e.on(m)
	return m.effects
}

// effect is one of these.
type effect any

type (
	call    func()          // of a sink
	wake    struct{}        // memberships need something of join
	follow  struct{ *line } // until forget
	forget  struct{ *line }
	unwatch struct { // the open watch ends; the next one opens after a pause
		*line
		pause time.Duration // 0: that of a failure
	}
	askProgress struct { // how far the open watch has told
		*line
		timeout time.Duration
	}
	write struct { // to the log
		level slog.Level
		text  string
		args  []any
	}
)

func (m *machine) emit(e effect) { m.effects = append(m.effects, e) }

func (m *machine) log(level slog.Level, text string, args ...any) { m.emit(write{level, text, args}) }

// subscribed is a new membership.
type subscribed struct{ *membership }

func (e subscribed) on(m *machine) {
	m.memberships[e.provider] = e.membership
	m.attach(e.membership)
	e.tell(e.failure) // the session's problem too
	m.emit(wake{})
}

// unsubscribed is a membership that has no users any more.
type unsubscribed struct{ *membership }

func (e unsubscribed) on(m *machine) {
	delete(m.memberships, e.provider)
	l := e.line
	if l == nil {
		return
	}
	delete(l.members, e.folder) // it stays the line of what is under way
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

// attach gives a membership its line.
func (m *machine) attach(p *membership) {
	if p.stage == following {
		p.stage = toList // its next watch begins at the present
	}
	folder := m.folder
	if m.narrow {
		folder = p.folder
	}
	if p.line = m.lines[folder]; p.line == nil && len(m.lines) == mostFolders {
		p.tell(errFolders)
		return
	} else if p.line == nil {
		p.line = m.newLine(folder)
	}
	p.line.members[p.folder] = p
}

// newLine returns the line of a folder.
func (m *machine) newLine(folder string) *line {
	l := &line{m: m, folder: folder, members: map[string]*membership{}}
	m.lines[folder] = l
	m.emit(follow{l})
	return l
}

// forget ends a line.
func (m *machine) forget(l *line) {
	l.open, l.begun = false, false
	delete(m.lines, l.folder)
	m.emit(forget{l})
}

// opened is a session that begins.
type opened struct{}

func (opened) on(m *machine) { m.newLine(m.folder) }

// leased is another lease of the session; nil says that it is gone.
type leased struct{ *lease }

func (e leased) on(m *machine) {
	m.lease = e.lease
	m.emit(wake{})
	for _, p := range m.all() {
		if e.lease == nil && p.stage != toRegister && !m.closed {
			p.lose(errLease)
		}
	}
}

// problem is one of the etcd of all providers; nil says that it is over.
type problem struct {
	of  string
	err error
}

func (e problem) on(m *machine) {
	if textOf(m.problems[e.of]) == textOf(e.err) {
		return
	}
	if e.err == nil {
		delete(m.problems, e.of)
		m.log(slog.LevelInfo, "recovered", "of", e.of)
	} else {
		m.problems[e.of] = e.err
		m.log(slog.LevelWarn, "all providers have a problem", "of", e.of, "providers", len(m.memberships), "problem", e.err)
	}
	for _, p := range m.all() {
		p.tell(p.failure)
	}
}

func (m *machine) problem() error {
	var errs []error
	for _, of := range slices.Sorted(maps.Keys(m.problems)) {
		errs = append(errs, m.problems[of])
	}
	return errors.Join(errs...)
}

// all returns the memberships by provider.
func (m *machine) all() []*membership { return sorted(m.memberships) }

// sorted returns a map's values by their keys.
func sorted[T any](of map[string]T) []T {
	all := make([]T, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[key])
	}
	return all
}

// nextBatch takes memberships that need something, while there is a lease. Each has a line
// that has begun, whose events are kept for it from now on: before anything of it is written.
// With again it takes those that have failed, too; failing tells that there are others.
func (m *machine) nextBatch(again bool) (batch []*joining, failing bool) {
	for _, p := range m.all() {
		p.failed = p.failed && !again
		failing = failing || p.failed
		if m.lease == nil || p.stage == following || p.batch != nil || p.line == nil || !p.line.begun || p.failed || p.silent || len(batch) == batchJoins {
			continue
		}
		p.batch = &joining{p: p, fresh: p.stage == toRegister, m: listing{incarnation: p.incarnation}, line: p.line, gen: p.line.gen, position: p.line.Position()}
		batch = append(batch, p.batch)
	}
	return batch, failing
}

// holdBack returns how long a watch stays closed when a fleet is large, 0 if none is. It
// tells of all providers, so it is the least that any policy allows.
func (m *machine) holdBack() time.Duration {
	large, held := false, mostHeldBack
	for _, p := range m.memberships {
		if p.policy != nil {
			large = large || p.tracker.Instances() >= manyInstances
			held = min(held, heldBack(manyInstances, p.policy))
		}
	}
	if !large {
		return 0
	}
	return held
}
