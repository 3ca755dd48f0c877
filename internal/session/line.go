package session

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/session/view"
)

// Line is one line of the store's history: a watch of a folder, and what reads prove of how recent
// it is. A session has one line of all providers. An account that may read single providers only has
// a line for each of them, up to MaxLines.
//
// A line begins when etcd has created a watch, which then tells all that follows. It stays begun
// while watches end and the next one goes on where they left off. A gap ends it: events were lost,
// or the store was put back. Then it begins again with the next watch, at the present, and its
// members are listed again.
type Line struct {
	history view.Line // up to where the watch has told, and what is proved by that

	m       *Machine
	Folder  string             // in etcd, that is watched; it ends with a slash
	members map[string]*Member // by folder, whose keys this watch tells

	begun   bool     // a watch has begun, and no gap was found since
	gen     int      // counts the gaps: an answer to a question of before one counts for nothing
	open    bool     // a watch is open; answers of one that has ended count for nothing
	proved  int64    // monotonic instant of the newest proof; 0 if there is none since the last gap
	behind  int64    // monotonic instant since when the watch is behind what reads have seen; 0 if it is not
	failure error    // why the line cannot be watched, or not be proved; nil if it can
	logged  []string // the failures that the log has, since the last proof
	latest  rush     // the changes that the watch has told lately
}

const (
	// MaxLines bounds the lines of a session: each costs a stream of etcd's watch service.
	MaxLines = 16
	// mostLogged bounds the failures of one outage that are logged. A watch fails every few seconds
	// while etcd has no leader, with few different errors.
	mostLogged = 4
)

var (
	// errLease ends an instance whose lease is gone.
	errLease = errors.New("this instance's lease has ended in etcd; it is registering again")
	// ErrGone ends an instance whose key is gone.
	ErrGone = errors.New("this instance's key is gone from etcd; it is registering again")
	// errLines refuses a provider beyond MaxLines.
	errLines = fmt.Errorf("coordinator: this etcd user may read single providers only, and a session can follow %d of them: "+
		"let it read all (quota-admin roles), or use a second session", MaxLines)
)

// Member returns the member whose keys are in a folder; nil if this line has none.
func (l *Line) Member(folder string) *Member { return l.members[folder] }

// From returns the revision from which the line's next watch is to tell; 0 is the present.
func (l *Line) From() int64 {
	if !l.begun {
		return 0
	}
	return l.history.Position() + 1
}

// unwatch ends the open watch.
func (l *Line) unwatch(pause time.Duration) {
	l.open = false
	l.m.emit(Unwatch{l, pause})
}

// fail tells all members why the line fails, or by nil that it no longer does.
func (l *Line) fail(err error) {
	l.failure = err
	switch {
	case err == nil:
		l.logged = nil
	case len(l.logged) < mostLogged && !slices.Contains(l.logged, err.Error()):
		l.logged = append(l.logged, err.Error())
		l.m.log(slog.LevelWarn, "the watch of etcd failed", "folder", l.Folder, "providers", len(l.members), "error", err)
	}
	for _, p := range Sorted(l.members) {
		p.tell(p.failure)
	}
}

// prove passes a new proof on to the members, if there is one.
func (l *Line) prove() {
	if !l.history.Behind() {
		l.behind = 0
	}
	proof, ok := l.history.Proof()
	if !ok || !l.begun || proof.Mono <= l.proved {
		return
	}
	all := Sorted(l.members)
	if slices.ContainsFunc(all, func(p *Member) bool { return p.stage == following && p.untold != 0 && l.history.Position() >= p.untold }) {
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

// gap notes that events were lost: the watch ends at once, and all members are listed again when
// another one has begun.
func (l *Line) gap(why string) {
	if !l.begun {
		return
	}
	l.m.log(slog.LevelWarn, "starting over: no share for the settle time", "folder", l.Folder, "providers", len(l.members), "because", why)
	l.begun, l.proved = false, 0
	l.gen++
	l.m.gaps = true
	if l.open {
		l.unwatch(0)
	}
	for _, p := range l.members {
		if p.stage == following {
			p.stage = toList
			p.listed = max(p.listed, l.history.Position()) // a listing of an older revision shows that the store went back
		}
	}
}

// Question is what a probe asks etcd by one linearizable read, on behalf of all lines: whether the
// mark, which is the newest key of this session, is there as it was created. A store that has it has
// everything that was committed before.
type Question struct {
	Owner *Member     // of the mark; nil if there is none, and nothing to prove
	Mark  Incarnation // in force when the question was made
	lines []probed
}

// probed is a line that waits for the answer to a question.
type probed struct {
	*Line
	gen   int        // the line's, when the question was made
	probe view.Probe // of the line's history
}

// Question returns what to ask by a probe that is sent at an instant.
func (m *Machine) Question(sent clock.Instant) (q Question) {
	for _, l := range Sorted(m.lines) {
		if l.begun {
			q.lines = append(q.lines, probed{l, l.gen, l.history.Sent(sent)})
		}
	}
	for _, p := range m.all() {
		if p.stage == following && p.own.Created > q.Mark.Created {
			q.Owner, q.Mark = p, p.own
		}
	}
	return q
}

// askProgress asks how far the watch has told. The answer comes in the watch's own order, when all
// before it is delivered. If it is long in coming, the next probe asks again.
func (l *Line) askProgress() {
	if l.open {
		l.m.emit(AskProgress{l, l.m.Freshness()})
	}
}

// lag takes care of a watch that is behind what a probe has seen.
func (l *Line) lag() {
	now := l.m.now.Mono
	switch {
	case !l.history.Behind() || !l.open:
		return
	case l.behind == 0:
		l.behind = now
	case now-l.behind > int64(freshness(l.members)/2):
		// Reads are answered and the watch is not: it hangs on a member of etcd that lags.
		l.m.log(slog.LevelWarn, "the watch fell behind; reopening it", "folder", l.Folder)
		l.behind = now
		l.unwatch(0)
	}
	l.askProgress()
}

// freshness returns the least that a policy of some members demands.
func freshness(of map[string]*Member) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range of {
		least = min(least, p.freshness())
	}
	return least
}
