package config

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// departure is an instance that leaves, and is replaced, in the measured time.
type departure struct {
	At time.Duration
	// Kill says that it is killed, Crash that all of a process are. Otherwise it is
	// announced.
	Kill, Crash bool
}

// Plan returns the departures of a run, in order of time: churn at its rate, the
// killed ones evenly among the announced ones, every instance once, or crashes.
func (c *Config) Plan() []departure {
	var list []departure
	for _, m := range c.Crashes {
		list = append(list, departure{At: m.At, Crash: true})
	}
	if c.Rolling {
		// The last one ends in the measured time too, unless that is very short.
		span := max(c.Duration-c.restart(), c.Duration/2)
		for i := range c.Instances {
			list = append(list, departure{At: time.Duration(float64(span) * float64(i) / float64(c.Instances))})
		}
		return list
	}
	if c.Churn == 0 {
		return list
	}
	killed := func(n int) float64 { return math.Floor(float64(n) * c.churnKill) }
	for i := 0; ; i++ {
		at := time.Duration((float64(i) + 0.5) / c.Churn * float64(time.Second))
		if at >= c.Duration {
			return list
		}
		list = append(list, departure{At: at, Kill: killed(i+1) > killed(i)})
	}
}

// restart is how long an announced restart takes at most, by any policy, and a little
// more: the settle time, up to a boundary of the longest window.
func (c *Config) restart() time.Duration { return c.Settle + c.Growth() + time.Second }

// Growth is how long after the settle time a share may come, at most: with a
// window of every length; under other shapes than fixed windows, which hold it
// back, two windows later.
func (c *Config) Growth() time.Duration {
	if c.Shaped() {
		return 3*c.Longest() + c.policy.Guard
	}
	return c.Longest()
}

// Patience is how long the fleet may take to become active while no instance joins or
// becomes active: longer than it must, with an instance's worth more for each.
func (c *Config) Patience() time.Duration {
	return c.Settle + c.Growth() + c.Longest() + 30*time.Second + time.Duration(c.Instances)*50*time.Millisecond
}

// MaxPatience is how long the fleet may take to become active, whatever its instances do: on a
// busy machine they join slowly.
func (c *Config) MaxPatience() time.Duration { return 4 * c.Patience() }

// Bucket is the length of time by which permits are counted as they come.
const Bucket = 10 * time.Millisecond

// Sheet is what a generator counts in of a run that begins at an instant, to longer
// than the run can take. Permits may tell a window before it, or after its end.
func (c *Config) Sheet(since int64) load.Sheet {
	around := 2*c.Longest() + 10*time.Second
	sheet := load.Sheet{
		Since: since - int64(around), Until: since + int64(c.MaxPatience()+c.MeasureAfter+c.Duration+c.MaxWait+around),
		Lengths: []time.Duration{load.Labelled: c.Cell(), load.Came: Bucket, load.Misplaced: c.Longest()},
	}
	for range c.Keys {
		sheet.Lengths = append(sheet.Lengths, c.KeyLimit.Window)
	}
	return sheet
}

// victimLife is how long a victim must live, so that it is active when it is
// killed: it joins, settles, and serves for a while.
func (c *Config) victimLife() time.Duration {
	return c.Settle + c.Growth() + c.Longest() + 5*time.Second
}

// Victims is how many instances are in processes of their own, to be killed in
// turn.
func (c *Config) Victims() int {
	rate := c.Churn * c.churnKill
	if rate == 0 || c.Rolling {
		return 0
	}
	return int(math.Ceil(rate*c.victimLife().Seconds())) + 1
}

// Lends reports whether instances lend each other permits that they do not need.
func (c *Config) Lends() bool {
	return !c.Shaped() && protocol.Lends(&c.policy) && c.Window() >= protocol.MinLending
}

// Parts are those of the instances, where the policy gives each one its own and it lends
// nothing.
func (c *Config) Parts() (parts []load.Part) {
	if c.Lends() {
		return nil
	}
	for _, calls := range c.Spread.Parts(c.Instances, 0) {
		parts = append(parts, load.Part{Calls: calls, Total: 1 / float64(c.Instances)})
	}
	return parts
}

// Calls returns what an instance with the given part of all calls asks for in a window
// with the given total: a mean, and a number below which no window falls.
//
// At a demand of 1 or more, evenly spread, each instance calls at least once more than
// the largest possible share. Unused permits are then the limiter's fault.
func (c *Config) Calls(part float64, total int64) (mean float64, floor int64) {
	if c.Demand >= 1 && c.Spread.Even() {
		n := int64(c.Instances)
		floor = (total+n-1)/n + 1
	}
	return c.Demand * float64(total) * part, floor
}
