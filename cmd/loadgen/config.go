package main

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// config is what the flags say, checked.
type config struct {
	limits    []quota.Limit
	limit     string // limits, as written
	instances int
	processes int
	duration  time.Duration
	demand    float64
	arrival   load.Arrival
	skew      load.Skew
	seed      uint64
	maxWait   time.Duration
	changes   []change
	churn     float64 // instances that leave and join, a second
	churnKill float64 // the part of them that is killed
	rolling   bool    // every instance restarts once
	crashes   []time.Duration
	warmup    time.Duration // before the measured time
	http      bool          // permits make requests
	members   int           // of the embedded etcd
	faults    []fault
	settle    time.Duration
	outage    quota.Outage
	share     quota.ShareRule
	weights   string // of instances, under share weighted: heavyTenth, or a skew
	pacing    quota.Pacing
	shape     quota.Shape
	burst     int64         // permits; 0: all of a limit's
	warmUp    time.Duration // of an instance's share
	guard     time.Duration
	guardAuto bool     // the clock's error comes on top
	ntp       []string // servers by which instances measure their clocks
	json      string   // a file, "-" for standard output, or empty
	html      string   // a file, or empty
	quiet     bool
	etcd      *etcdflags.Flags // nil: an embedded etcd
}

// change is a limit change on the way.
type change struct {
	at     time.Duration // after the measured time began
	limits []quota.Limit
	text   string
}

// window is the length of the shortest limit's window, of the policy and of
// every change.
func (c *config) window() time.Duration { return load.Shortest(c.limits).Window }

// longest is the longest window of any limit of the run.
func (c *config) longest() time.Duration {
	lengths := c.lengths()
	return lengths[len(lengths)-1]
}

// lengths are those of the windows of all limits of the run, the shortest first.
func (c *config) lengths() []time.Duration {
	lists := [][]quota.Limit{c.limits}
	for _, ch := range c.changes {
		lists = append(lists, ch.limits)
	}
	return load.Lengths(lists...)
}

// policy is the run's policy with the given limits.
//
// A settle time shorter than the default is too short for the default clock
// error too. Both are then scaled alike: the whole fleet runs on one machine,
// whose clock has no error against itself.
func (c *config) policy(limits []quota.Limit, reason string) quota.Policy {
	clockError := quota.DefaultClockError
	if c.settle < quota.DefaultSettle {
		clockError = time.Duration(int64(clockError) * int64(c.settle) / int64(quota.DefaultSettle))
	}
	return quota.Policy{
		Limits:     limits,
		Settle:     c.settle,
		ClockError: clockError,
		Outage:     c.outage,
		Share:      c.share,
		Pacing:     c.pacing,
		Shape:      c.shape,
		Burst:      c.burst,
		WarmUp:     c.warmUp,
		Guard:      c.guard,
		GuardAuto:  c.guardAuto,
		Author:     "loadgen",
		Reason:     reason,
	}
}

// probe is how often an instance proves its view recent: a few times before the
// last proof is too old, where a short settle time makes that soon.
func (c *config) probe() time.Duration {
	freshness := c.policy(c.limits, "").WithDefaults().Freshness
	return min(max(freshness/4, 50*time.Millisecond), coordinator.DefaultProbe)
}

// reported is the configuration as the report shows it.
type reported struct {
	Limit     string   `json:"limit"`
	Instances int      `json:"instances"`
	Duration  string   `json:"duration"`
	Demand    float64  `json:"demand"`
	Arrival   string   `json:"arrival"`
	Skew      string   `json:"skew"`
	Seed      uint64   `json:"seed"`
	MaxWait   string   `json:"max_wait"`
	Changes   []string `json:"changes"`
	Processes int      `json:"processes"`
	Churn     float64  `json:"churn"`
	ChurnKill float64  `json:"churn_kill"`
	Rolling   bool     `json:"rolling_restart"`
	Crashes   []string `json:"crashes"`
	Warmup    string   `json:"warmup"`
	Transport string   `json:"transport"`
	Members   int      `json:"etcd_members"` // of the embedded one; otherwise 0
	Faults    []string `json:"faults"`
	Settle    string   `json:"settle"`
	Outage    string   `json:"outage"`
	Share     string   `json:"share"`
	Weights   string   `json:"weights,omitempty"`
	Pacing    string   `json:"pacing"`
	Shape     string   `json:"shape"`
	Burst     int64    `json:"burst,omitempty"` // 0: all of a limit's permits
	WarmUp    string   `json:"warm_up,omitempty"`
	Guard     string   `json:"guard"`
	NTP       []string `json:"ntp"`
	Etcd      []string `json:"etcd"` // endpoints; empty for the embedded one
	Provider  string   `json:"provider"`
}

func (c *config) report(provider string) reported {
	r := reported{
		Limit: c.limit, Instances: c.instances, Duration: c.duration.String(), Demand: c.demand,
		Arrival: string(c.arrival), Skew: c.skew.String(), Seed: c.seed, MaxWait: c.maxWait.String(),
		Processes: c.processes, Churn: c.churn, ChurnKill: c.churnKill, Rolling: c.rolling, Transport: "none",
		Members: c.members, Faults: []string{}, Crashes: []string{}, Warmup: c.warmup.String(),
		Changes: []string{}, Settle: c.settle.String(), Outage: string(c.outage),
		Share: string(c.share), Weights: c.sharesByWeight(), Pacing: string(c.pacing), Shape: string(c.shape), Burst: c.burst,
		Guard: quota.FormatGuard(c.guard, c.guardAuto), NTP: append([]string{}, c.ntp...), Etcd: []string{}, Provider: provider,
	}
	if c.warmUp > 0 {
		r.WarmUp = c.warmUp.String()
	}
	for _, ch := range c.changes {
		r.Changes = append(r.Changes, ch.at.String()+"="+ch.text)
	}
	for _, f := range c.faults {
		r.Faults = append(r.Faults, f.at.String()+"="+f.name)
	}
	for _, at := range c.crashes {
		r.Crashes = append(r.Crashes, at.String())
	}
	if c.http {
		r.Transport = "http"
	}
	if c.etcd != nil {
		r.Etcd, r.Members = c.etcd.Endpoints, 0
	}
	return r
}

// processesText says, in parentheses, that the fleet is in several processes.
func (c *config) processesText() string {
	switch n, victims := c.processes, c.victims(); {
	case victims > 0:
		return fmt.Sprintf(" (%d processes, and %d to be killed)", n, victims)
	case n > 1:
		return fmt.Sprintf(" (%d processes)", n)
	}
	return ""
}
