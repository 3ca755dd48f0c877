package ntp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

const (
	// phi is what the rate of a clock is taken to err by at least, in ppm (PHI in
	// RFC 5905). The rate that is measured comes on top, twice, for it may change.
	phi = 15
	// maxGrowth is what it is taken to err by at most, and as long as it has not
	// been measured: what the kernel lets a daemon change (MAXFREQ, linux/timex.h).
	maxGrowth = 500
	// rateSpan is the shortest time over which a rate is measured: over less, what
	// the estimates err by hides it.
	rateSpan = 16 * time.Second
)

// answer is what came of one question: a sample, or a problem.
type answer struct {
	sample  sample
	problem string
	slower  bool          // the server wants to be asked half as often, for good
	wait    time.Duration // for which it wants to be left alone, at least
}

type group struct {
	every   time.Duration
	servers []*server
	last    clock.Estimate // the newest, if made
	made    bool
	growth  int64 // ppm
}

func newGroup(addresses []string, every time.Duration) *group {
	g := &group{every: every, growth: maxGrowth}
	for _, a := range addresses {
		g.servers = append(g.servers, &server{address: a})
	}
	return g
}

// due returns the servers to ask at the instant now, and notes that they are
// asked; and when the next is due.
func (g *group) due(now int64) (ask []int, next int64) {
	next = now + int64(maxPoll)
	for i, s := range g.servers {
		switch {
		case s.asked:
		case s.next <= now:
			s.asked = true
			ask = append(ask, i)
		default:
			next = min(next, s.next)
		}
	}
	return ask, next
}

// forget drops all samples, because their clock has stopped for a while or may have. It
// has the servers asked soon.
func (g *group) forget(now int64) {
	g.made, g.growth = false, maxGrowth
	for _, s := range g.servers {
		s.samples = nil
		s.hurry(now)
	}
}

type verdict struct {
	estimate clock.Estimate
	// ok says that a majority agree, and estimate is theirs. The voters are the
	// servers that have ever answered: so those that are left when others have
	// gone cannot outvote them.
	ok      bool
	votes   int // servers that hold one and the same time possible
	health  clock.Health
	servers []ServerStatus
}

// ServerStatus is one server, for operators.
type ServerStatus struct {
	Address string
	// Answers says that the server has answered of late. Offset is then true
	// time minus the clock's by its best sample, and Distance the bound on that.
	Answers          bool
	Offset, Distance time.Duration
	held             interval // where true time is by that sample
	// Agrees says that it is of the majority.
	Agrees bool
	// Problem is why its last question got no answer that can be used.
	Problem string
}

// judge finds the time that a majority agrees on at the instant now. offset is
// the clock's, to which the servers' are compared for operators.
func (g *group) judge(now, offset int64) verdict {
	v := verdict{health: clock.Health{Servers: len(g.servers)}}
	var all []interval
	voters, trouble := 0, ""
	for _, s := range g.servers {
		if s.voter {
			voters++
		}
		st := ServerStatus{Address: s.address, Problem: s.trouble}
		if b, ok := s.best(now, g.growth, g.every); ok {
			all = append(all, b)
			half := (b.hi - b.lo) / 2
			st.Answers, st.held, st.Offset, st.Distance = true, b, time.Duration(b.lo+half-offset), time.Duration(half)
		} else if s.trouble != "" {
			trouble = fmt.Sprintf(" (%s: %s)", s.address, s.trouble)
		}
		v.servers = append(v.servers, st)
	}
	common, votes := majority(all)
	v.votes, v.ok, v.health.Answering = votes, 2*votes > voters, len(all)
	switch {
	case v.ok:
		for i := range v.servers {
			if s := &v.servers[i]; s.Answers && s.held.meets(common) {
				s.Agrees = true
				v.health.Agreeing++
			}
		}
		half := (common.hi - common.lo + 1) / 2
		v.estimate = clock.Estimate{Mono: now, Offset: common.lo + half, Error: time.Duration(half)}
		g.pace(&v.estimate)
	case len(g.servers) > 0 && len(all) == 0:
		v.health.Problem = fmt.Sprintf("no NTP server of %d answers%s", len(g.servers), trouble)
	case len(g.servers) > 0:
		v.health.Problem = fmt.Sprintf("no majority of the %d NTP servers that have answered agree on the time, %d answer now%s", voters, len(all), trouble)
	}
	return v
}

// pace measures the clock's rate, from one estimate to the next.
func (g *group) pace(e *clock.Estimate) {
	if age := e.Mono - g.last.Mono; !g.made || age >= int64(max(g.every, rateSpan)) {
		if g.made {
			moved := e.Offset - g.last.Offset
			rate := max(moved, -moved) / max(1, age/1e6) // ns in ms, that is ppm
			g.growth = min(maxGrowth, phi+2*rate)
		}
		g.last, g.made = *e, true
	}
	e.Growth = g.growth
}

// interval is where the true offset is, if a server is right: from lo to hi,
// both included, in nanoseconds.
type interval struct{ lo, hi int64 }

func (i interval) meets(j interval) bool { return i.lo <= j.hi && j.lo <= i.hi }

// majority returns the interval in which the true offset is, if no more of the
// intervals are wrong than must be: from the lowest to the highest offset that
// the largest number of intervals have in common. votes is that number.
//
// It is the algorithm of K. Marzullo, Maintaining the Time in a Distributed System
// (1984), as NTP's selection has it (RFC 5905, section 11.2.1), but for one thing: NTP
// also counts midpoints, to tell who is precise. A bound is wanted here. Where two
// groups of equal size contradict each other within a third one's interval, it spans
// both.
func majority(all []interval) (common interval, votes int) {
	type edge struct {
		at   int64
		step int // 1 where an interval begins, -1 where it ends
	}
	edges := make([]edge, 0, 2*len(all))
	for _, i := range all {
		if i.lo <= i.hi {
			edges = append(edges, edge{i.lo, 1}, edge{i.hi, -1})
		}
	}
	// At one offset beginnings come first: intervals that touch have it in common.
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), b.step-a.step)
	})
	depth := 0
	for _, e := range edges {
		switch {
		case e.step > 0:
			if depth++; depth > votes {
				votes, common.lo = depth, e.at
			}
		default:
			if depth == votes {
				common.hi = e.at
			}
			depth--
		}
	}
	return common, votes
}
