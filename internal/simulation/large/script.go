package large

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	// epoch is true time 0 in nanoseconds since the Unix epoch, a whole minute.
	epoch = 28_333_334 * int64(time.Minute)
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
	stormEnds  = 5 * second
	lowered    = 12 * second
	raised     = 17 * second
	deploy     = 22 * second
	deployEnds = 24 * second
	end        = 33 * second
)

// commit is one revision of etcd.
type commit struct {
	at     int64 // true time
	change protocol.Change
	who    int // the instance that it is about, -1 for a policy
}

// actor is one instance from its join to its end.
type actor struct {
	first quota.Instance // as it joins
	later quota.Instance // as it announces its end
	// Revisions, as indexes of the script's commits: of the join, of the announced
	// end and of the deletion; never if there is none.
	joins, announces, deleted int
	dies                      int64 // it issues nothing from this true time on
}

const never = 1 << 30

// script is what etcd commits, and of whom.
type script struct {
	commits []commit
	actors  []actor
	total   func(at int64) int64 // of the newest policy at a true time
}

func policy(total int64) *quota.Policy {
	p := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: time.Second}}, Outage: quota.OutageStop}.WithDefaults()
	return &p
}

// newScript draws the history of a fleet of n.
func newScript(n int, r *rand.Rand) *script {
	s := &script{}
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
		from := protocol.FirstWindow(epoch+at, policy(s.total(at)))
		if a := &s.actors[i]; i%2 == 0 {
			a.dies = at
			s.commits = append(s.commits, commit{at + 5500*ms, protocol.Change{Deleted: []string{a.first.ID}}, i})
		} else {
			a.later = a.first
			a.later.Until = protocol.FirstWindow(epoch+at+heldBack, policy(s.total(at)))
			s.commits = append(s.commits, commit{at, protocol.Change{Put: []quota.Instance{a.later}}, i})
		}
		s.join(len(s.actors), at+r.Int64N(50*ms), from.Add(time.Second))
	}
	slices.SortStableFunc(s.commits, func(a, b commit) int { return cmp.Compare(a.at, b.at) })
	s.number()
	return s
}

// join adds an instance that joins at a true time and, unless from is zero, says
// from when it takes part.
func (s *script) join(i int, at int64, from time.Time) {
	in := quota.Instance{ID: fmt.Sprintf("i%d", i), Weight: 1, From: from}
	s.actors = append(s.actors, actor{first: in, dies: end})
	s.commits = append(s.commits, commit{at, protocol.Change{Put: []quota.Instance{in}}, i})
}

// number gives the commits their revisions, and tells the actors theirs.
func (s *script) number() {
	for i := range s.actors {
		a := &s.actors[i]
		a.joins, a.announces, a.deleted = never, never, never
	}
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
func (s *script) view(k int) protocol.View {
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
