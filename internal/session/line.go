package session

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session/view"
)

// Line is one folder of etcd, which it follows by one watch at a time, with the proof of how recent what the
// watch has told is. A session has one line for all its providers. If its etcd user may read single providers
// only, it has a line for each of them, up to MaxLines.
//
// A line begins when etcd has created its first watch. When a watch ends, the next one goes on where it left
// off, and the line stays begun. A gap ends the line: events were lost, or etcd was restored. Then the
// next watch begins the line again, at the present, and its members are listed again.
type Line struct {
	// history is how far the watch has told, and the newest instant for which reads prove that it has told
	// all. The other fields here are about the watch and the members.
	history view.Line

	m       *Machine
	Folder  string             // the folder in etcd that is watched; it ends with a slash
	members map[string]*Member // those whose keys the watch tells, by their folder

	begun  bool  // a watch was created, and no gap was found since
	gen    int   // counts the gaps: an answer to a question from before the latest one is ignored
	open   bool  // a watch is open, or being opened; answers of one that has ended are ignored
	proved int64 // monotonic instant of the newest proof that the members were told; 0 if there is none since the last gap
	// behind is the monotonic instant at which the open watch was first seen to lag behind what reads have
	// returned; 0 if that was not seen.
	behind  int64
	failure error    // why the watch fails, or no proof comes; nil while both work
	logged  []string // the failures that were logged since the line last worked, at most mostLogged
	latest  rush     // counts the changes that the watch has told lately
}

const (
	// MaxLines bounds the lines of a session: each costs a stream of etcd's watch service.
	MaxLines = 16
	// mostLogged bounds the failures of one outage that are logged. A watch fails every few seconds
	// while etcd has no leader, with few different errors.
	mostLogged = 4
)

var (
	// ErrLease ends an incarnation whose lease is gone.
	ErrLease = errors.New("this instance's lease has ended in etcd; it is registering again")
	// ErrGone ends an incarnation whose key is gone.
	ErrGone = errors.New("this instance's registration is gone from etcd; it is registering again")
	// errLines refuses a provider beyond MaxLines.
	errLines = fmt.Errorf("coordinator: this etcd user may read single providers only, and a session can follow %d of them: "+
		"let it read all (quota-admin roles), or use a second session", MaxLines)
)

// Member returns the member whose keys are in a folder; nil if this line has none.
func (l *Line) Member(folder string) *Member { return l.members[folder] }

// From returns the revision at which the line's next watch is to begin; 0 means the present.
func (l *Line) From() int64 {
	if !l.begun {
		return 0
	}
	return l.history.Position() + 1
}

// unwatch ends the open watch. The next one is opened after about pause; 0 stands for the back-off after a
// failure.
func (l *Line) unwatch(pause time.Duration) {
	l.open = false
	l.m.emit(Unwatch{l, pause})
}

// fail notes why the line fails, or with nil that it works again. All members tell their sinks.
func (l *Line) fail(err error) {
	l.failure = err
	switch {
	case err == nil:
		l.logged = nil
	case len(l.logged) < mostLogged && !slices.Contains(l.logged, err.Error()):
		l.logged = append(l.logged, err.Error())
		text, do := "the watch of etcd failed", cause.LeaveRunning
		if errors.Is(err, cause.ErrDenied) { // etcd answers, and refuses
			text, do = "etcd does not let this program take part", cmp.Or(cause.Command(err.Error()), cause.Remedy(err))
		}
		l.m.log(slog.LevelWarn, text, "folder", l.Folder, "providers", len(l.members), "error", err, "do", do)
	}
	for _, p := range Sorted(l.members) {
		p.tell(p.failure) // that is the member's own failure; tell adds the line's
	}
}

// prove passes a new proof on to the members, if there is one. If the watch has passed the revision of a key
// that a member has written, and never told of that key, it is no proof but a gap.
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

// replaced is gap where etcd is not the store that the watch has told of, or went back, and so may have lost data. by is
// the ID of the cluster that has shown that. If it is the one that is watched, the store went back.
func (l *Line) replaced(by uint64, why string) {
	l.end("etcd was restored or replaced: "+why, "see whether quota-admin list has all that was set; instances go on by themselves", by == l.history.Cluster())
}

// gap ends a line that has begun, because the watch may have lost events; why goes to the log. It ends the
// watch at once. When the line has begun again, the members that followed are listed again; those that are to
// register do that. A line that has not begun has nothing to lose, and gap does nothing to it.
func (l *Line) gap(why string) {
	l.end(why, "nothing; if it happens again and again: quota-admin doctor", false)
}

// end is gap, with what the log says that is to be done. back says that the store went back.
func (l *Line) end(why, do string, back bool) {
	if !l.begun {
		return
	}
	l.m.log(slog.LevelWarn, "starting over: no share for the settle time", "folder", l.Folder, "providers", len(l.members), "because", why, "do", do)
	l.begun, l.proved = false, 0
	l.gen++
	l.m.gaps = true
	if l.open {
		l.unwatch(0)
	}
	for _, p := range l.members {
		p.leaves(back)
	}
	if l.Folder == l.m.folder {
		l.m.leave(l, back)
	}
}

// Question is what a probe asks etcd in one linearizable read, for all lines at once. A session has one witness:
// of the instance keys that it has written, and whose members follow, the newest, or the one that a probe has
// missed (Machine.missed). The question is whether that key is there, and was created at the same revision as
// when it was written. A store that has it also has everything that was committed before it.
type Question struct {
	Owner   *Member     // whose instance key the witness is; nil if there is no witness, so nothing can be proved
	Witness Incarnation // the owner's incarnation when the question was made: its Key is to be read
	lines   []probed    // those that have begun
}

// probed is a line as of when a question was made.
type probed struct {
	*Line
	gen   int        // the line's
	probe view.Probe // when the question was sent, and the least revision that its answer must have
}

// Question returns the question of a probe that is sent at the instant sent.
func (m *Machine) Question(sent clock.Instant) (q Question) {
	for _, l := range Sorted(m.lines) {
		if l.begun {
			q.lines = append(q.lines, probed{l, l.gen, l.history.Sent(sent)})
		}
	}
	for _, p := range m.all() {
		if p.stage != following {
			continue
		}
		if p.own.ID == m.missed.id {
			q.Owner, q.Witness = p, p.own
			break
		}
		if p.own.Created > q.Witness.Created {
			q.Owner, q.Witness = p, p.own
		}
	}
	return q
}

// askProgress asks etcd how far the watch has told. The answer comes through the watch itself, after all
// changes up to there. If it takes long, the next probe asks again.
func (l *Line) askProgress() {
	if l.open {
		l.m.emit(AskProgress{l, l.m.Freshness()})
	}
}

// lag asks for the open watch's progress, which is behind what a probe has read. If it stays behind for over half of
// the shortest freshness of the members, lag ends it, and the session opens the next one.
func (l *Line) lag() {
	now := l.m.now.Mono
	switch {
	case !l.open:
		return
	case l.behind == 0:
		l.behind = now
	case now-l.behind > int64(freshness(l.members)/2):
		// Reads are answered, and the watch tells too little: probably the etcd server that it is
		// connected to lags.
		l.m.log(slog.LevelWarn, "the watch fell behind; reopening it", "folder", l.Folder, "do", "nothing, unless it goes on: etcd is slow, and quota-admin doctor finds the cause")
		l.behind = now
		l.unwatch(0)
	}
	l.askProgress()
}

// freshness returns the shortest freshness of these members: how old a proof may be before the view of one of
// them is stale. A member without a policy counts with quota.DefaultFreshness. Of no members it is the
// largest Duration.
func freshness(of map[string]*Member) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range of {
		least = min(least, p.freshness())
	}
	return least
}
