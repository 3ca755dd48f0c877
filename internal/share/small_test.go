package share_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

func seconds(t int64) float64 { return float64(t) / 1e9 }

// The exhaustive search: every history of a small world, instead of random ones
// of a large world. Two instances and a third that may join, two policies, three
// revisions at every choice of instants around the one that decides, and for
// each instance every choice of when it learns of each and of its clock's error.
//
// An instance does not know what others issue. So the largest sum of a log is
// the sum of what each instance can issue at most, and each can be tried alone:
// all combinations are covered at the price of one instance after the other.
// What an instance issues in a window is largest if it takes all it may as soon
// as it may, and if it proves its view recent whenever that is the truth.

// The small world's times.
const (
	smallLength = 100 * ms
	smallFresh  = 100 * ms
	smallError  = 10 * ms
	smallStart  = 600 * ms // of the window that is judged
)

var smallA = quota.Policy{Limits: []quota.Limit{{Permits: 3, Window: 100 * time.Millisecond}}}

var smallB = quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: 100 * time.Millisecond}, {Permits: 2, Window: 200 * time.Millisecond}}}

// smallIDs are the instances; the last is not there at first.
var smallIDs = []string{"a", "b", "c"}

// small is a search.
type small struct {
	settle   time.Duration
	together bool // what is learned at once is one view
	most     int  // logs; 0: all

	logs  int    // revisions in order, with their instants
	lives int    // instances tried in them
	over  string // the first history in which more was issued than is promised
}

// least is the settle time by the timing rule.
var least = quota.MinSettleFor(time.Duration(smallFresh), time.Duration(smallError), 200*time.Millisecond)

// allFlag has the search try every history, and the naive models many more, which takes
// minutes: in the long run.
var allFlag = flag.Bool("all", false, "try every history of the small world, and 400 random ones of each naive model")

// seeds is how many random histories a naive model is compared in.
func seeds() uint64 {
	switch {
	case *allFlag:
		return 400
	case testing.Short():
		return 15
	}
	return 60
}

// TestEverySmallHistory tries histories of the small world: the first ones, and with -all each
// one. And some of a world whose policies have a settle time that is too short, and so give
// nothing.
//
//	go test ./internal/share -run Small -all -v
func TestEverySmallHistory(t *testing.T) {
	few := 200
	if testing.Short() {
		few = 70
	}
	most := few
	if *allFlag {
		most = 0
	}
	for _, s := range []small{{settle: time.Duration(smallFresh), most: few}, {settle: least, most: most}} {
		if s.search(); s.over != "" {
			t.Fatalf("over, in log %d:\n%s", s.logs, s.over)
		}
		t.Logf("settle time %v: %d logs, %d lives of an instance in them, none over", s.settle, s.logs, s.lives)
	}
}

// TestSmallHistoriesCatch: the search finds what a safeguard is for.
func TestSmallHistoriesCatch(t *testing.T) {
	if !*allFlag {
		t.Skip("runs with -all")
	}
	s := small{settle: least, together: true}
	if s.search(); s.over == "" {
		t.Errorf("views that are put together are not over in %d logs", s.logs)
	}
}

// smallChanges is the alphabet of a log.
func (s *small) changes() []protocol.Change {
	a, b := s.policy(smallA), s.policy(smallB)
	return []protocol.Change{
		{Policy: a}, {Policy: b},
		{Put: []protocol.Instance{{ID: "c"}}},
		{Deleted: []string{"a"}},
		{Deleted: []string{"c"}},
	}
}

func (s *small) policy(p quota.Policy) *quota.Policy {
	p.Settle, p.Freshness, p.ClockError = s.settle, time.Duration(smallFresh), time.Duration(smallError)
	p.Outage = quota.OutageStop
	p = p.WithDefaults()
	return &p
}

// smallLog is three revisions and when they are committed.
type smallLog struct {
	changes [3]protocol.Change
	at      [3]int64
	views   [4]protocol.View // before the first, and after each
}

// search tries everything, or until the first violation.
func (s *small) search() {
	var instants []int64
	// From before the lookback of the slowest clock to within the window.
	for at := smallStart - int64(s.settle) - smallError - 15*ms; at < smallStart+30*ms; at += 30 * ms {
		instants = append(instants, at)
	}
	alphabet := s.changes()
	for _, c0 := range alphabet {
		for _, c1 := range alphabet {
			for _, c2 := range alphabet {
				for i, t0 := range instants {
					for j, t1 := range instants[i:] {
						for _, t2 := range instants[i+j:] {
							if s.over != "" || s.most > 0 && s.logs == s.most {
								return
							}
							s.log(smallLog{changes: [3]protocol.Change{c0, c1, c2}, at: [3]int64{t0, t1 + 1, t2 + 2}})
						}
					}
				}
			}
		}
	}
}

// log tries all instances in one log, for the window of either length.
func (s *small) log(l smallLog) {
	s.logs++
	first := protocol.View{Revision: 1, Policy: s.policy(smallA), PolicyRevision: 1}
	for _, id := range smallIDs[:2] {
		first.Instances = append(first.Instances, protocol.Instance{ID: id})
	}
	l.views[0] = first
	for i := range l.changes {
		l.changes[i].Revision = int64(i + 2)
		l.views[i+1] = after(l.views[i], l.changes[i])
	}
	for _, length := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
		win := quota.WindowAt(length, planEpoch+smallStart)
		sum, story := int64(0), ""
		for _, id := range smallIDs {
			n, how := s.best(&l, id, win)
			sum += n
			story += fmt.Sprintf("  %s issues %d: %s\n", id, n, how)
		}
		start := win.Start() - planEpoch
		promised := l.line().Bound(win, start+smallError-int64(least), start-smallError-smallFresh, win.End()-planEpoch+smallError, sum, false).Most
		if sum > promised && s.over == "" {
			s.over = fmt.Sprintf("window %v from 0.600s: %d permits, promised %d\n%s%s", length, sum, promised, l.tell(), story)
		}
	}
}

// line is the log as the judge takes it.
func (l *smallLog) line() (all trace.Views) {
	for i := range l.views {
		v := trace.View{View: l.views[i], After: math.MinInt64, By: math.MinInt64}
		if i > 0 {
			v.After, v.By = l.at[i-1]-1, l.at[i-1]
		}
		all = append(all, v)
	}
	return all
}

// after is the view after a change.
func after(v protocol.View, c protocol.Change) protocol.View {
	v.Revision = c.Revision
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i protocol.Instance) bool {
		return slices.Contains(c.Deleted, i.ID) || len(c.Put) > 0 && c.Put[0].ID == i.ID
	})
	v.Instances = append(v.Instances, c.Put...)
	if c.Policy != nil {
		v.Policy, v.PolicyRevision = c.Policy, c.Revision
	}
	return v
}

// smallDelays are how late an instance may learn of a revision: at once, just
// within the freshness, and after it.
var smallDelays = []int64{1 * ms, 99 * ms, 125 * ms}

// best returns the most that an instance can issue in a window, and how.
func (s *small) best(l *smallLog, id string, win quota.Window) (most int64, how string) {
	for _, err := range []int64{-smallError, smallError} {
		for _, d0 := range smallDelays {
			for _, d1 := range smallDelays {
				for _, d2 := range smallDelays {
					seen := [3]int64{l.at[0] + d0, l.at[1] + d1, l.at[2] + d2}
					seen[1] = max(seen[1], seen[0])
					seen[2] = max(seen[2], seen[1])
					s.lives++
					if n := s.live(l, id, win, err, seen); n > most {
						most, how = n, fmt.Sprintf("clock off by %v, learns at %.3fs %.3fs %.3fs", time.Duration(err),
							seconds(seen[0]), seconds(seen[1]), seconds(seen[2]))
					}
				}
			}
		}
	}
	return most, how
}

// live lives one instance's life: it learns of revision i at seen[i], and takes
// what it may of the window.
func (s *small) live(l *smallLog, id string, win quota.Window, err int64, seen [3]int64) (issued int64) {
	read := func(t int64) clock.Instant { return clock.Instant{Mono: t + smallStart, Wall: planEpoch + t + err} }
	c := clock.Started(read(0), nil)
	w := share.Planner{Clock: c}
	next := 0
	switch joins := l.joins(); {
	case id != smallIDs[2]:
		w.Reset(read(0), id, l.views[0])
	case joins < 0:
		return 0
	default: // the listing is as new as it can be
		next = joins + 1
		w.Reset(read(l.at[joins]+1), id, l.views[next])
	}
	start := win.Start() - planEpoch - err
	for _, t := range []int64{start, start + 20*ms, start + 45*ms, start + 70*ms, start + 95*ms} {
		next = s.learn(&w, l, next, t, seen, read)
		// Everything before the first revision that was not learned of is known.
		proof := t - 1
		for i := next; i < len(l.at); i++ {
			proof = min(proof, l.at[i])
		}
		w.Prove(read(proof))
		now := read(t)
		plan := w.Plan(now)
		if t < start || now.Mono >= plan.Proof.Until || now.Wall >= plan.Proof.WallUntil {
			continue
		}
		budget := share.Unbounded
		for _, limit := range plan.Limits {
			if limit.Window.Length == win.Length {
				budget = limit.Permits - issued
			}
		}
		if budget > 0 && budget < share.Unbounded {
			issued += budget
		}
	}
	return issued
}

// learn applies what was learned by t, revision by revision.
func (s *small) learn(w *share.Planner, l *smallLog, next int, t int64, seen [3]int64, read func(int64) clock.Instant) int {
	for next < len(seen) && seen[next] <= t {
		last := next
		if s.together {
			for last+1 < len(seen) && seen[last+1] == seen[next] {
				last++
			}
		}
		c := l.changes[next]
		for i := next + 1; i <= last; i++ {
			c = merge(c, l.changes[i])
		}
		c.Revision = l.changes[last].Revision
		w.Apply(read(seen[next]), c)
		next = last + 1
	}
	return next
}

// merge is two changes as if they were one.
func merge(a, b protocol.Change) protocol.Change {
	if b.Policy != nil {
		a.Policy = b.Policy
	}
	for _, id := range b.Deleted {
		a.Put = slices.DeleteFunc(slices.Clone(a.Put), func(i protocol.Instance) bool { return i.ID == id })
	}
	for _, p := range b.Put {
		a.Deleted = slices.DeleteFunc(slices.Clone(a.Deleted), func(id string) bool { return id == p.ID })
	}
	a.Put, a.Deleted = slices.Concat(a.Put, b.Put), slices.Concat(a.Deleted, b.Deleted)
	return a
}

// joins is the first revision that puts the third instance's key, -1 if none.
func (l *smallLog) joins() int {
	return slices.IndexFunc(l.changes[:], func(c protocol.Change) bool { return len(c.Put) > 0 })
}

func (l *smallLog) tell() (text string) {
	for i, c := range l.changes {
		text += fmt.Sprintf("  %.3fs", seconds(l.at[i]))
		if c.Policy != nil {
			text += fmt.Sprint(" limits ", c.Policy.Limits)
		}
		text += fmt.Sprintf(" put %v deleted %v\n", c.Put, c.Deleted)
	}
	return text
}
