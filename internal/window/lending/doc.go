// Package lending decides when an instance asks others for permits, whom it asks and for how
// many, and how many a host lends. The rules are those of docs/proof/protocol.md, section 13.
//
// Nothing here decides whether the sum is exact: package window books what is lent and
// borrowed. Every function takes the time; the package reads no clock and draws no random
// numbers. Instants and lengths are in milliseconds, rates in calls per millisecond.
package lending

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Rules are the numbers that depend on the size of a fleet.
type Rules struct {
	// Reserve is the part of its own share that a host keeps at a window's start.
	Reserve float64
	// Duty is one in how many windows a host is on duty: it keeps its whole share for
	// instances that wake. 0: never.
	Duty int64
	// Rounds is how often a guest may ask in a window, and Bare how often if it has no share
	// of its own.
	Rounds, Bare int
	// Samples is how many asks of samples all instances together may write in a second before
	// they ask hosts one by one: see Noise.
	Samples float64
}

// small is the size of a fleet below which nobody is on duty, large that above which a
// guest needs more rounds to reach everybody.
const small, large = 20, 200

// fewOwners is the number of instances with a share below which the asks of all others would
// overwhelm them.
const fewOwners = 8

// RulesOf returns the rules of a fleet of n instances, of which some have shares.
func RulesOf(n, owners int) Rules {
	r := Rules{Reserve: 0.01, Duty: 20, Rounds: 8}
	if n < small {
		r = Rules{Reserve: 0.1, Rounds: 8}
	}
	if n > large {
		r.Rounds = 12
	}
	r.Samples = max(samples, events/float64(max(1, n)))
	r.Bare = max(1, r.Rounds*min(n, max(owners, fewOwners))/max(1, n))
	return r
}

// The same for all fleets.
const (
	smoothed = 50  // time constant of the smoothed rate
	begins   = 100 // a rate of calls that have just begun counts so long
	ends     = 140 // the last so long of a window
	ends2    = 40  // and the very last
	ahead    = 150 // reserves are released so long before a window's end
	lead     = 60  // a guest asks when it has permits for less than that
	horizon  = 200 // it asks for so long at first, and then for the rest of the window
	spacing  = 25  // between two rounds; twice that if nothing came
	margin   = 1.05
	silence  = 5   // calls that did not come end a forecast: by chance so many stay away after one call in 150
	tiny     = 20  // a guest with a share asks for at least this part of a fair one
	woke     = 50  // the same, if it had no calls in the last window: a rate begins with few
	seldom   = 0.1 // fewer calls than that are not expected to come: a smoothed rate never is 0
	slack    = 1.2
	hosts    = 1.5 // asked for each fair share that is needed
	few      = 10  // permits that one host is asked for by the poor; a share of fewer is small
	sparse   = 3   // so few calls in a window tell no rate: one alone would count as a burst; a share of fewer is tiny
	sure     = 3   // of so many calls that a guest expects beyond what it has, some will surely come
	fewHosts = 4
)

// OnDuty reports whether the instance with this hash is on duty in a window. Everybody can
// tell.
func (r Rules) OnDuty(hash uint64, window int64) bool {
	return r.Duty > 0 && (int64(hash%uint64(r.Duty))+window)%r.Duty == 0
}

// Chance orders names by chance.
func Chance(name string, salt uint64) uint64 {
	h := salt
	for i := range len(name) {
		h = protocol.Mix(h ^ uint64(name[i]))
	}
	return h
}

// whole rounds v down, or up with the chance of its fraction.
func whole(v float64, chance uint64) int64 {
	return int64(math.Floor(v + float64(protocol.Mix(chance)%1000)/1000))
}
