package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
)

// line is a session's one line of the store: a watch of all providers, and what is proved
// of it. Memberships are projections of it. An account that may read only some providers
// has a line for each of them, up to mostFolders.
type line struct {
	view.Line
	m       *machine
	folder  string                 // that is watched
	members map[string]*membership // by folder
	watch   *watch                 // that follows it

	begun   bool  // the watch has begun, and no gap was found since
	gen     int   // counts the gaps
	open    bool  // the watch is
	proved  int64 // monotonic instant of the newest proof, 0 if none
	behind  int64 // since when the watch has been behind, 0 if it is not
	failure error // why the watch cannot be followed, or nil
	latest  rush
}

// mostFolders bounds the lines of a session.
const mostFolders = 16

var (
	// errLease ends an incarnation whose lease is gone.
	errLease = errors.New("this instance's lease has ended in etcd; it is registering again")
	// errGone ends an incarnation whose key is gone.
	errGone = errors.New("this instance's key is gone from etcd; it is registering again")
	// errFolders refuses a provider beyond mostFolders.
	errFolders = fmt.Errorf("coordinator: this etcd user may read single providers only, and a session can follow %d of them: "+
		"let it read all (quota-admin roles), or use a second session", mostFolders)
)

// watched is a line's watch that opens.
type watched struct{ *line }

func (e watched) on(*machine) { e.open, e.behind = true, 0 }

// from returns the revision from which a line's next watch tells; 0: the present.
func (l *line) from() int64 {
	if !l.begun {
		return 0
	}
	return l.Position() + 1
}

// watchAnswer is an answer of a line's watch.
type watchAnswer struct {
	*line
	created, progress bool
	revision          int64 // of its header
	cluster           uint64
	about             []*membership
	events            map[*membership][]view.Key
	newest            int64 // revision of the newest event; 0 without
}

func (e watchAnswer) on(m *machine) {
	l, n := e.line, 0
	switch {
	case !l.open: // it may be of a store that was replaced
		return
	case l.begun && e.cluster != l.Cluster():
		l.gap("etcd was restored or replaced: another cluster answered")
		return
	case e.created && !l.begun:
		l.Begin(e.revision, e.cluster)
		l.begun = true
		m.emit(wake{})
		return
	case e.progress:
		l.Progress(e.revision)
	}
	for _, p := range e.about {
		p.take(e.events[p])
		n += len(e.events[p])
	}
	l.Progress(e.newest)
	l.prove()
	if held := m.holdBack(); l.latest.changes(n, m.now.Mono, held) && l.open {
		l.unwatch(held)
	}
}

// unwatch ends the open watch.
func (l *line) unwatch(pause time.Duration) {
	l.open = false
	l.m.emit(unwatch{l, pause})
}

// ended is a line's watch that has ended, for a reason or none; gap tells that it cannot go
// on where it was.
type ended struct {
	*line
	err error
	gap bool
}

func (e ended) on(m *machine) {
	l := e.line
	l.open = false // there is none to ask for its progress
	switch {
	case e.gap:
		l.gap(e.err.Error())
	case errors.Is(e.err, ErrPermission) && l.folder == m.folder:
		m.narrow, m.gaps = true, m.gaps || l.begun // each provider gets a line of its own
		m.forget(l)
		for _, p := range m.all() {
			m.attach(p)
		}
	case e.err != nil:
		l.fail(e.err)
	}
}

// fail tells all why the watch cannot be followed, or that it is again.
func (l *line) fail(err error) {
	if l.failure = err; err != nil {
		l.m.log(slog.LevelWarn, "the watch of etcd failed", "folder", l.folder, "providers", len(l.members), "error", err)
	}
	for _, p := range sorted(l.members) {
		p.tell(p.failure)
	}
}

// prove passes a new proof on to the memberships.
func (l *line) prove() {
	if !l.Behind() {
		l.behind = 0
	}
	proof, ok := l.Proof()
	if !ok || !l.begun || proof.Mono <= l.proved {
		return
	}
	all := sorted(l.members)
	if slices.ContainsFunc(all, func(p *membership) bool { return p.stage == following && p.untold != 0 && l.Position() >= p.untold }) {
		l.gap("the watch does not tell of a key that this session has written")
		return
	}
	if l.proved = proof.Mono; l.failure != nil {
		l.fail(nil)
	}
	for _, p := range all {
		p.prove(proof)
	}
}

// gap notes that the histories have a gap: the watch ends at once, and all begin again
// when another has begun.
func (l *line) gap(why string) {
	if !l.begun {
		return
	}
	l.m.log(slog.LevelWarn, "starting over: no share for the settle time", "folder", l.folder, "providers", len(l.members), "because", why)
	l.begun, l.proved = false, 0
	l.gen++
	l.m.gaps = true
	if l.open {
		l.unwatch(0)
	}
	for _, p := range l.members {
		if p.stage == following {
			p.stage = toList
			p.listed = max(p.listed, l.Position()) // a listing of an older revision shows that the store went back
		}
	}
}

// probed is a line that waits for the answer of a probe.
type probed struct {
	*line
	gen   int
	probe view.Probe
}

// question is a probe's: the mark is the newest key of this session. A store that has it as
// it was created has everything that was committed before.
type question struct {
	of    []probed
	owner *membership // of the mark; nil if there is none
	mark  incarnation
}

// question returns what a probe asks that is sent at an instant.
func (m *machine) question(sent clock.Instant) (q question) {
	for _, l := range sorted(m.lines) {
		if l.begun {
			q.of = append(q.of, probed{l, l.gen, l.Sent(sent)})
		}
	}
	for _, p := range m.all() {
		if p.stage == following && p.created > q.mark.created {
			q.owner, q.mark = p, p.incarnation
		}
	}
	return q
}

// lateProbe is a probe that has no answer yet. A slow etcd takes as long to tell how far the
// watch is: to ask for that only after the answer would make the proof twice as old.
type lateProbe struct{ question }

func (e lateProbe) on(m *machine) {
	for _, a := range e.of {
		a.askProgress()
	}
}

// askProgress asks how far the watch has told. The answer comes in its own order, when all
// is delivered; while it is not, the next probe asks again.
func (l *line) askProgress() {
	if l.open {
		l.m.emit(askProgress{l, freshness(l.m.memberships)})
	}
}

// answered is a probe's answer.
type answered struct {
	question
	revision int64
	cluster  uint64
	created  int64 // revision at which the mark was; 0 if it is not there
}

func (e answered) on(*machine) {
	o, missing := e.owner, e.created != e.mark.created
	switch {
	case missing && (o.id != e.mark.id || o.stage != following):
		return // its deletion is known
	case missing && o.line.Position() < e.revision && e.cluster == o.line.Cluster():
		o.line.askProgress() // its watch may be about to say so
		return
	}
	for _, a := range e.of {
		switch {
		case a.gen != a.line.gen:
		case missing:
			a.gap("the newest key of this session is not in etcd as it was written")
		case a.Answer(a.probe, e.revision, e.cluster):
			a.gap("etcd was restored or replaced: a read returned an older revision, or another cluster answered")
		default:
			a.prove()
			a.lag()
		}
	}
}

// lag takes care of a watch that lags behind an answer.
func (l *line) lag() {
	now := l.m.now.Mono
	switch {
	case !l.Behind() || !l.open:
		return
	case l.behind == 0:
		l.behind = now
	case now-l.behind > int64(freshness(l.members)/2):
		// Reads are answered and the watch is not: it hangs on a member that lags.
		l.m.log(slog.LevelWarn, "the watch fell behind; reopening it", "folder", l.folder)
		l.behind = now
		l.unwatch(0)
	}
	l.askProgress()
}

// unanswered is a probe that has failed. It tells why nothing is proved, once that has
// lasted.
type unanswered struct{ err error }

func (e unanswered) on(m *machine) {
	for _, l := range sorted(m.lines) {
		if l.failure == nil && l.proved != 0 && m.now.Mono-l.proved > int64(freshness(l.members)) && !m.closed {
			l.fail(e.err)
		}
	}
}

// freshness is the least that a policy of some memberships demands.
func freshness(of map[string]*membership) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range of {
		least = min(least, p.freshness())
	}
	return least
}
