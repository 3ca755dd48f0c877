package share_test

// The history of a fleet of thousands: what etcd commits, and when, is drawn first, and
// given that, one instance's life does not depend on another's. So the hosts are played one
// after the other, in the memory of one. The share and the settle rule are the real code;
// the hosts' clocks, what delays the watch, and how recent a proof can be at best are models.
// Every instance takes all that it may, whenever it asks, and the sum of each window is
// compared with the totals that the proof allows (docs/proof/protocol.md, section 4).

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	sec = int64(time.Second)
	// clockError is the bound on the error of every wall clock.
	clockError = 50 * ms
	// How long a session closes its watch when more than rushChanges come in that
	// time, with the default freshness; package coordinator says why.
	heldBack    = 625 * ms
	rushChanges = 12
)

// The phases, in true time: a storm of joins; a total that is smaller than the
// fleet; a larger one; and a deploy in which some crash, some leave in good order
// and as many join.
const (
	stormEnds  = 5 * sec
	lowered    = 12 * sec
	raised     = 17 * sec
	deploy     = 22 * sec
	deployEnds = 24 * sec
	end        = 33 * sec
)

// commit is one revision of etcd.
type commit struct {
	at     int64 // true time
	change protocol.Change
	who    int // the instance that it is about, -1 for a policy
}

// actor is one instance from its join to its end.
type actor struct {
	first protocol.Instance // as it joins
	later protocol.Instance // as it announces its end
	// Revisions, as indexes of the story's commits: of the join, of the announced
	// end and of the deletion; never if there is none.
	joins, announces, deleted int
	dies                      int64 // it issues nothing from this true time on
}

const never = 1 << 30

// story is what etcd commits, and of whom.
type story struct {
	commits []commit
	actors  []actor
	total   func(at int64) int64 // of the newest policy at a true time
}

func policy(total int64) *quota.Policy {
	p := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: time.Second}}, Outage: quota.OutageStop}.WithDefaults()
	return &p
}

// newStory draws the history of a fleet of n.
func newStory(n int, r *rand.Rand) *story {
	s := &story{}
	totals := []struct{ at, total int64 }{{0, int64(3*n + n/3)}, {lowered, int64(n/2 + 1)}, {raised, int64(10*n + 7)}}
	s.total = func(at int64) (total int64) {
		for _, t := range totals {
			if t.at <= at {
				total = t.total
			}
		}
		return total
	}
	for _, t := range totals {
		s.commits = append(s.commits, commit{t.at, protocol.Change{Policy: policy(t.total)}, -1})
	}
	for i := range n {
		s.join(i, 1+r.Int64N(stormEnds-1), time.Time{})
	}
	for i := range n / 5 {
		at := deploy + r.Int64N(deployEnds-deploy)
		from := protocol.FirstWindow(planEpoch+at, policy(s.total(at)))
		if a := &s.actors[i]; i%2 == 0 {
			a.dies = at
			s.commits = append(s.commits, commit{at + 5500*ms, protocol.Change{Deleted: []string{a.first.ID}}, i})
		} else {
			a.later = a.first
			a.later.Until = protocol.FirstWindow(planEpoch+at+heldBack, policy(s.total(at)))
			s.commits = append(s.commits, commit{at, protocol.Change{Put: []protocol.Instance{a.later}}, i})
		}
		s.join(len(s.actors), at+r.Int64N(50*ms), from.Add(time.Second))
	}
	slices.SortStableFunc(s.commits, func(a, b commit) int { return cmp.Compare(a.at, b.at) })
	s.number()
	return s
}

// join adds an instance that joins at a true time and, unless from is zero, says
// from when it takes part.
func (s *story) join(i int, at int64, from time.Time) {
	in := protocol.Instance{ID: fmt.Sprintf("i%d", i), From: from}
	s.actors = append(s.actors, actor{first: in, dies: end, joins: never, announces: never, deleted: never})
	s.commits = append(s.commits, commit{at, protocol.Change{Put: []protocol.Instance{in}}, i})
}

// number gives the commits their revisions, and tells the actors theirs.
func (s *story) number() {
	for k := range s.commits {
		c := &s.commits[k]
		c.change.Revision = int64(k) + 1
		switch {
		case c.who < 0:
		case c.change.Deleted != nil:
			s.actors[c.who].deleted = k
		case s.actors[c.who].joins == never:
			s.actors[c.who].joins = k
		default:
			s.actors[c.who].announces = k
		}
	}
}

// view returns etcd's view after a commit.
func (s *story) view(k int) protocol.View {
	v := protocol.View{Revision: s.commits[k].change.Revision}
	for _, c := range s.commits[:k+1] {
		if c.change.Policy != nil {
			v.Policy, v.PolicyRevision = c.change.Policy, c.change.Revision
		}
	}
	for i := range s.actors {
		switch a := &s.actors[i]; {
		case a.joins > k || a.deleted <= k:
		case a.announces <= k:
			v.Instances = append(v.Instances, a.later)
		default:
			v.Instances = append(v.Instances, a.first)
		}
	}
	return v
}

// life is one instance while it is played.
type life struct {
	*story
	*actor
	r    *rand.Rand
	rate int64 // ppm by which its monotonic clock runs fast
	err  int64 // of its wall clock, constant

	history share.History
	next    int     // the commit that is delivered next
	due     int64   // true time of its delivery
	hangs   int64   // until then nothing is delivered
	recent  int     // commits delivered since counted
	counted int64   // true time
	opens   int64   // until then the watch is closed, because commits came fast
	used    []int64 // by window, from 0
}

func (l *life) mono(at int64) int64 { return at + at/1_000_000*l.rate }
func (l *life) wall(at int64) int64 { return planEpoch + at + l.err }

// play lives through one instance's history and adds what it issues to the windows.
func (l *life) play(issued []int64) {
	l.rate, l.err = l.r.Int64N(1001)-500, l.r.Int64N(2*clockError+1)-clockError
	listed := l.commits[l.joins].at + 1 + l.r.Int64N(20*ms)
	l.history.Reset(l.mono(listed), l.first.ID, l.view(l.joins))
	l.next, l.opens = l.joins+1, listed+heldBack
	l.schedule(listed)
	l.used = make([]int64, len(issued))
	for at := listed; at < min(end, l.dies); {
		l.deliver(at)
		l.ask(at)
		at = l.after(at)
	}
	for w, n := range l.used {
		issued[w] += n
	}
}

// after draws when it asks next: at random, or right before or at the next window's
// start.
func (l *life) after(at int64) int64 {
	next := at + 1 + l.r.Int64N(450*ms)
	if edge := l.wall(next)/sec*sec - planEpoch - l.err; edge > at && l.r.IntN(2) == 0 {
		return max(at+1, edge-l.r.Int64N(2))
	}
	return next
}

// schedule draws when the next commit is delivered: soon mostly, now and then late,
// and sometimes so late that the view is no longer fresh.
func (l *life) schedule(now int64) {
	if l.next == len(l.commits) {
		return
	}
	delay := 1 + l.r.Int64N(10*ms)
	if now > l.hangs && l.r.IntN(len(l.actors)) < 4 {
		l.hangs = now + l.r.Int64N(3*sec)
	}
	l.due = max(now, l.opens, l.commits[l.next].at+delay, min(l.hangs, l.commits[l.next].at+4*sec))
}

// held closes the watch for a little when commits come fast, as sessions do in
// large fleets; a new one's is closed to begin with.
func (l *life) held(at int64) {
	if at-l.counted > heldBack {
		l.recent, l.counted = 0, at
	}
	if l.recent++; l.recent > rushChanges && l.opens < at {
		l.opens = at + heldBack/2 + l.r.Int64N(heldBack/2)
	}
}

// deliver applies what has come by a true time, one revision after the other.
func (l *life) deliver(at int64) {
	for l.next < len(l.commits) && l.due <= at {
		l.history.Apply(l.mono(l.due), l.commits[l.next].change)
		l.next++
		l.held(l.due)
		l.schedule(l.due)
	}
}

// ask takes all that the settle rule allows at a true time, if the view is fresh:
// if a proof can exist, at best, that is younger than the freshness.
func (l *life) ask(at int64) {
	if l.next < len(l.commits) {
		// A read that was sent after this commit returns a revision that the watch
		// has not delivered.
		sent := l.commits[l.next].at
		if max(l.mono(at)-l.mono(sent), at-sent) >= int64(quota.DefaultFreshness) {
			return
		}
	}
	w := quota.WindowAt(largeWindow, l.wall(at))
	i := w.Index - planEpoch/sec
	if i < 0 || i >= int64(len(l.used)) {
		return
	}
	b := l.history.Bound(w, l.mono(at), l.wall(at)-l.mono(at), share.NotFrozen)
	if b.Permits != share.Unbounded {
		l.used[i] = max(l.used[i], b.Permits)
	}
}
