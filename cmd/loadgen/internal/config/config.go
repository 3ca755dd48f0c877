// Package config is a run as the flags say it: checked, with what follows from it.
package config

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Config is what the flags say, checked.
type Config struct {
	Args         []string       // all of the flags
	Asked        map[string]any // each flag, as the report shows it
	Limits       []quota.Limit
	Limit        string // limits, as written
	Instances    int
	Processes    int
	Duration     time.Duration
	Demand       float64
	Arrival      load.Arrival
	Spread       load.Spread
	Keys         int         // that calls are for; 0: they have none
	KeySpread    load.Spread // of calls over them
	KeyLimit     quota.Limit // of each
	Seed         uint64
	MaxWait      time.Duration
	Changes      []change
	Churn        float64 // instances that leave and join, a second
	churnKill    float64 // the part of them that is killed
	Rolling      bool    // every instance restarts once
	Crashes      []moment
	LeastUse     float64       // in percent of what is due
	MeasureAfter time.Duration // the fleet is active
	WindowOffset time.Duration // after the beginning the longest limit's window ends; 0: by the clock
	Ahead        time.Duration // of the system's clock are all clocks of the run, so that it does
	Http         bool          // permits make requests
	Members      int           // of the embedded etcd
	Faults       []moment
	Settle       time.Duration
	policy       quota.Policy // as far as flags say it
	NTP          []string     // servers by which instances measure their clocks
	JSON         string       // a file, "-" for standard output, or empty
	HTML         string       // a file, or empty
	Trace        string       // a directory for traces, or empty
	Judge        string       // one whose traces are to be judged; empty: the run is
	Quiet        bool
	Etcd         *etcdflags.Flags
	Embedded     bool // etcd is; nothing but its endpoints is to be known
}

type change struct {
	moment
	Limits []quota.Limit
}

// Window is the length of the shortest limit's window, of the policy and of
// every change.
func (c *Config) Window() time.Duration { return load.Shortest(c.Limits).Window }

// Longest is the longest window of any limit of the run that instances share.
func (c *Config) Longest() time.Duration {
	return slices.Max(slices.DeleteFunc(c.Lengths(), func(d time.Duration) bool { return d > quota.MaxWindow }))
}

// Lengths are those of the windows of all limits of the run, the shortest first.
func (c *Config) Lengths() []time.Duration { return load.Lengths(c.allLimits()...) }

func (c *Config) allLimits() [][]quota.Limit {
	lists := [][]quota.Limit{c.Limits}
	for _, ch := range c.Changes {
		lists = append(lists, ch.Limits)
	}
	return lists
}

// Now is the run's time, in nanoseconds since the Unix epoch.
func (c *Config) Now() int64 { return time.Now().UnixNano() + int64(c.Ahead) }

// Until is how long it is, by Now, until an instant.
func (c *Config) Until(at int64) time.Duration { return time.Duration(at - c.Now()) }

// SetAhead sets the run's clocks ahead, at its beginning, so that the longest limit's
// window ends WindowOffset later.
func (c *Config) SetAhead() {
	if c.WindowOffset > 0 {
		end := time.Now().Add(c.WindowOffset).UnixNano()
		longest := slices.MaxFunc(c.Limits, func(a, b quota.Limit) int { return cmp.Compare(a.Window, b.Window) })
		c.Ahead = time.Duration(protocol.BudgetAt(longest, time.UTC, end).End - end)
	}
}

// Policy is the run's policy with the given limits.
//
// A settle time shorter than the default is too short for the default clock
// error too. Both are then scaled alike: the whole fleet runs on one machine,
// whose clock has no error against itself.
func (c *Config) Policy(limits []quota.Limit, reason string) quota.Policy {
	clockError := quota.DefaultClockError
	if c.Settle < quota.DefaultSettle {
		clockError = time.Duration(int64(clockError) * int64(c.Settle) / int64(quota.DefaultSettle))
	}
	p := c.policy
	if len(limits) > 1 { // the one beside long limits stands in no policy
		limits = slices.DeleteFunc(slices.Clone(limits), protocol.Free)
	}
	p.Limits, p.Settle, p.ClockError, p.Author, p.Reason = limits, c.Settle, clockError, "loadgen", reason
	return p
}

// Paced reports whether permits come all along a window.
func (c *Config) Paced() bool { return c.policy.Pacing != quota.PacingOff || c.Shaped() }

// ProcessesText says, in parentheses, that the fleet is in several processes.
func (c *Config) ProcessesText() string {
	switch n, victims := c.Processes, c.Victims(); {
	case victims > 0:
		return fmt.Sprintf(" (%d processes, and %d to be killed)", n, victims)
	case n > 1:
		return fmt.Sprintf(" (%d processes)", n)
	}
	return ""
}

// mostBands bounds how many bands of instances a page tells apart.
const mostBands = 10

// Band returns the band of a slot's instance: the shares of a band are shown together.
func (c *Config) Band(slot int) int { return slot / c.bandSize() }

func (c *Config) bandSize() int { return (c.Instances + mostBands - 1) / mostBands }

// Bands returns the names of the bands.
func (c *Config) Bands() (names []string) {
	for first := 0; first < c.Instances; first += c.bandSize() {
		name := fmt.Sprintf("instance %d", first)
		if last := min(first+c.bandSize(), c.Instances) - 1; last > first {
			name = fmt.Sprintf("instances %d to %d", first, last)
		}
		names = append(names, name)
	}
	return names
}

// Client returns a client of the etcd of the flags, or of the embedded one. The
// caller closes it.
func (c *Config) Client(ctx context.Context, embedded []string) (*clientv3.Client, error) {
	if c.Embedded {
		c.Etcd.Endpoints = embedded
	}
	return c.Etcd.Client(ctx)
}

// GuardCovers reports whether a policy's guard is to cover the clocks' errors.
func GuardCovers(p *quota.Policy) bool { return p.Guard > 0 && p.Guard >= p.ClockError }

// Unjudged says why arrivals over the limit are not judged, given how far a
// clock was beyond the guard; empty: they are.
func (c *Config) Unjudged(beyond time.Duration) string {
	switch p := c.Policy(nil, ""); {
	case c.Shaped():
		return fmt.Sprintf("under shape %s the permits' own times are judged", p.Shape)
	case p.Guard == 0:
		return fmt.Sprintf("there is no guard; --guard %v has them judged", p.ClockError)
	case !GuardCovers(&p):
		return fmt.Sprintf("the guard of %v does not cover the policy's clock error of %v", p.Guard, p.ClockError)
	case beyond > 0:
		return fmt.Sprintf("an instance's clock was %v further from the provider's than its guard covers", beyond)
	}
	return ""
}
