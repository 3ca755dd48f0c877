//go:build e2e && linux

package faults

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Instances 0 and 1 are on the first worker's host, and so on.
var scenarios = []scenario{
	{name: "no fault", outage: quota.OutageStop, most: 1},
	{name: "20 ms ± 10 ms of delay and 1% loss on every link", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			r.slowLinks()
			wait(8 * window)
			r.calmLinks()
		}},
	{name: "a third of the instances killed, back after the lease", outage: quota.OutageStop, most: 1, fault: killed},
	{name: "a third of the instances stopped (SIGSTOP) for longer than the lease", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			for _, i := range all(0) {
				_ = r.instances[i].Pause()
			}
			wait(leaseTTL + 3*window)
			for _, i := range all(0) {
				_ = r.instances[i].Resume()
			}
		}},
	{name: "all instances killed, all started at once after the lease", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			for i := range r.instances {
				r.kill(i)
			}
			wait(leaseTTL + window)
			for i := range r.instances {
				r.launch(i)
			}
		}},
	{name: "etcd's leader killed, back after 5 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			l := r.etcd.leader(r.client)
			r.etcd.members[l].Kill()
			wait(5 * time.Second)
			r.etcd.restart(l)
		}},
	{name: "etcd's leader stopped (SIGSTOP) for 5 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			l := r.etcd.leader(r.client)
			_ = r.etcd.members[l].Pause()
			wait(5 * time.Second)
			_ = r.etcd.members[l].Resume()
		}},
	{name: "a follower killed, back after 5 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			f := r.etcd.followers(r.etcd.leader(r.client))[0]
			r.etcd.members[f].Kill()
			wait(5 * time.Second)
			r.etcd.restart(f)
		}},
	{name: "two of three members killed, back after 6 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			two := r.etcd.followers(r.etcd.leader(r.client))
			for _, f := range two {
				r.etcd.members[f].Kill()
			}
			wait(6 * time.Second)
			r.etcd.restart(two...)
		}},
	{name: "all of etcd lost for 8 s", outage: quota.OutageHold, most: 1, fault: loseEtcd},
	{name: "all of etcd lost for 8 s", outage: quota.OutageStop, most: 1, fault: loseEtcd},
	{name: "etcd's only member gets SIGTERM, back after 20 s; half of the fleet borrows", outage: quota.OutageHold, single: true, most: 1, least: lent, keeps: half, within: soon, configure: borrows, fault: stopped(20 * time.Second)},
	{name: "etcd's only member gets SIGTERM, back after 60 s; half of the fleet borrows", outage: quota.OutageHold, single: true, most: 1, least: lent, keeps: half, within: soon, configure: borrows, fault: stopped(time.Minute)},
	{name: "etcd's only member gets SIGTERM, back after 20 s", outage: quota.OutageStop, single: true, most: 1, fault: stopped(20 * time.Second)},
	{name: "etcd's only member gets SIGTERM, back after 60 s", outage: quota.OutageStop, single: true, most: 1, fault: stopped(time.Minute)},
	{name: "all three members get SIGTERM, back after 20 s; half of the fleet borrows", outage: quota.OutageHold, most: 1, least: lent, keeps: half, within: soon, configure: borrows, fault: stopped(20 * time.Second)},
	{name: "all three members get SIGTERM, back after 60 s; half of the fleet borrows", outage: quota.OutageHold, most: 1, least: lent, keeps: half, within: soon, configure: borrows, fault: stopped(time.Minute)},
	{name: "all three members get SIGTERM, back after 20 s", outage: quota.OutageStop, most: 1, fault: stopped(20 * time.Second)},
	{name: "all three members get SIGTERM, back after 60 s", outage: quota.OutageStop, most: 1, fault: stopped(time.Minute)},
	{name: "etcd restarted member by member, by SIGTERM; half of the fleet borrows", outage: quota.OutageStop, most: 1, least: lent, keeps: 0.9, configure: borrows,
		fault: func(r *run) {
			for _, i := range r.etcd.all() {
				r.etcd.terminate(i)
				r.etcd.ended(i)
				r.etcd.restart(i)
				wait(2 * window)
			}
		}},
	{name: "etcd's only member gets SIGTERM, stands still 1 s later, and is killed; back after 20 s", outage: quota.OutageHold, single: true, most: 1, keeps: 0.99,
		fault: func(r *run) {
			r.etcd.terminate(0)
			wait(window)
			_ = r.etcd.members[0].Pause()
			wait(19 * time.Second)
			r.etcd.members[0].Kill()
			r.etcd.restart(0)
		}},
	{name: "a third of the instances cut off from etcd's only member 1 s after its SIGTERM, for 11 s; back after 20 s", outage: quota.OutageHold, single: true, most: 1 + 1.0/workers + rounding, keeps: 0.99, rejoins: 1 - 1.0/workers - rounding,
		fault: func(r *run) {
			r.etcd.terminate(0)
			wait(window)
			r.workers[0].cut(r.etcd.hosts...)
			wait(11 * time.Second)
			r.workers[0].heal()
			wait(8 * time.Second)
			r.etcd.ended(0)
			r.restarted = time.Now().UnixNano()
			r.etcd.restart(0)
		}},
	{name: "a third of the instances cut off from etcd for 12 s (nftables)", outage: quota.OutageStop, most: 1, fault: cutOff},
	{name: "a third of the instances cut off from etcd for 12 s (nftables)", outage: quota.OutageHold, most: 1 + 1.0/workers + rounding, fault: cutOff},
	{name: "all instances cut off from etcd's only member for 20 s (nftables)", outage: quota.OutageStop, single: true, most: 1, fault: allCutOff(20 * time.Second)},
	{name: "all instances cut off from etcd for 40 s (nftables)", outage: quota.OutageStop, most: 1, fault: allCutOff(40 * time.Second)},
	{name: "a third of the instances without a link for 12 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			r.workers[0].unplug()
			wait(12 * time.Second)
			r.workers[0].plug()
		}},
	{name: "a follower cut from its peers, in reach of the instances, for 8 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			l := r.etcd.leader(r.client)
			two := r.etcd.followers(l)
			r.etcd.hosts[two[0]].cut(r.etcd.hosts[two[1]], r.etcd.hosts[l])
			wait(8 * time.Second)
			r.etcd.hosts[two[0]].heal()
		}},
	{name: "the leader's disk frozen for 1 s of every 2.5 s, for 10 s", outage: quota.OutageStop, most: 1,
		fault: func(r *run) {
			disk := r.etcd.dirs[r.etcd.leader(r.client)]
			defer func() { _ = exec.Command("fsfreeze", "-u", disk).Run() }() // if it is frozen still
			for range 4 {
				command(r.t, "fsfreeze", "-f", disk)
				wait(time.Second)
				command(r.t, "fsfreeze", "-u", disk)
				wait(1500 * time.Millisecond)
			}
		}},
	{name: "etcd restored from a backup: its revision goes back", outage: quota.OutageStop, most: 1,
		prepare: func(r *run) {
			for _, m := range r.etcd.members {
				m.Kill()
			}
			r.etcd.backup()
			r.relaunchEtcd()
		},
		fault: func(r *run) {
			for _, m := range r.etcd.members {
				m.Kill()
			}
			r.etcd.restore()
			r.relaunchEtcd()
		}},
	{name: "clocks off by -5 s, +5 s, +300 ms and -50 ms; NTP, guard 70 ms, 5000/s", outage: quota.OutageStop, most: 1, guard: clocksGuard, configure: wrongClocks},
	{name: "the same at 20000/s", limit: 20_000, outage: quota.OutageStop, most: 1, guard: clocksGuard, configure: wrongClocks},
	{name: "clocks set by +5 s and -2 s in use; NTP, guard 70 ms", outage: quota.OutageStop, most: 1, guard: clocksGuard, calm: 12 * window, configure: setClocks(true)},
	{name: "clocks set by +5 s and -2 s in use; no NTP", outage: quota.OutageHold, most: 0, calm: 12 * window, configure: setClocks(false)},
	{name: "half of the fleet borrows; a third killed, back after the lease", outage: quota.OutageStop, most: 1, least: lent, configure: borrows, fault: killed},
	{name: "half of the fleet borrows; a third cut from etcd for 12 s (nftables)", outage: quota.OutageStop, most: 1, least: lent, configure: borrows, fault: cutOff},
	{name: "half of the fleet borrows; clocks set by +5 s and -2 s; NTP, guard 70 ms", outage: quota.OutageStop, most: 1, least: lent, guard: clocksGuard, calm: 12 * window,
		configure: func(w *world, c *instanceConfig) {
			setClocks(true)(w, c)
			borrows(w, c)
		}},
}

// borrows leaves one instance of each host without callers: the other one borrows.
func borrows(_ *world, c *instanceConfig) { c.Idle = c.ID%2 == 0 }

func killed(r *run) {
	for _, i := range all(0) {
		r.kill(i)
	}
	wait(leaseTTL + window)
	for _, i := range all(0) {
		r.launch(i)
	}
}

func (r *run) relaunchEtcd() {
	r.etcd.restart(r.etcd.all()...)
}

const (
	// half is what a fleet keeps of which every other instance has no callers, without loans.
	half = 0.49
	// soon is within what time after a graceful end of etcd there are loans again.
	soon = 3 * time.Second
)

// stopped ends all of etcd in good order, and starts it again.
func stopped(away time.Duration) func(r *run) {
	return func(r *run) {
		r.etcd.terminate(r.etcd.all()...)
		wait(away)
		r.etcd.ended(r.etcd.all()...)
		r.relaunchEtcd()
	}
}

// slow is half of what packets suffer on their way from one slow link to another.
var slow = link{delay: 10 * time.Millisecond, jitter: 5 * time.Millisecond, loss: 0.005}

// links has hosts be attached so.
func (w *world) links(l link, hosts ...*host) {
	for _, h := range hosts {
		w.fabric.set(h.address, l)
	}
}

// slowLinks delays every packet, and loses some.
func (w *world) slowLinks() {
	for a := range w.fabric.ports {
		w.fabric.set(a, slow)
	}
}

// calmLinks lets every packet pass at once, but for the slow NTP server's.
func (w *world) calmLinks() {
	for a := range w.fabric.ports {
		if a != w.times.slow.address {
			w.fabric.set(a, link{})
		}
	}
}

// rounding is what shares that are rounded up add to a bound: a permit for each
// instance, at most.
const rounding = fleet / 5000.0

func loseEtcd(r *run) {
	for _, m := range r.etcd.members {
		m.Kill()
	}
	wait(8 * time.Second)
	r.relaunchEtcd()
}

func cutOff(r *run) {
	r.workers[0].cut(r.etcd.hosts...)
	wait(12 * time.Second)
	r.workers[0].heal()
}

func allCutOff(away time.Duration) func(r *run) {
	return func(r *run) {
		for _, h := range r.workers {
			h.cut(r.etcd.hosts...)
		}
		wait(away)
		for _, h := range r.workers {
			h.heal()
		}
	}
}

// clocksGuard covers a clock error of 50 ms, the default, and 20 ms for the way to the provider.
const clocksGuard = 70 * time.Millisecond

func wrongClocks(w *world, c *instanceConfig) {
	c.NTP = w.times.addresses()
	c.Skew = []time.Duration{-5 * time.Second, 5 * time.Second, lie, -50 * time.Millisecond, 0, 0}[c.ID-1]
}

func setClocks(ntp bool) func(w *world, c *instanceConfig) {
	return func(w *world, c *instanceConfig) {
		if ntp {
			c.NTP = w.times.addresses()
		}
		c.StepAfter = 10 * time.Second
		c.Step = []time.Duration{5 * time.Second, -2 * time.Second, 0, 0, 0, 0}[c.ID-1]
	}
}

// mostReplays is how often, in a whole run, a scenario is played again in which
// nothing was over, but less was issued, or later, than is promised: processes that
// get no processor issue nothing. One scenario may have them all. Where the witness saw that the machine
// stood still, a scenario is played again without that, mostStanding times. A window over its limit is
// never forgiven.
const mostReplays, mostStanding = 2, 3

// play plays a scenario, and returns its line of the table.
func (w *world) play(t *testing.T, s scenario, replays *int) string {
	m, standing := w.run(t, s), 0
	again := func() bool {
		switch {
		case len(m.failed) > 0 || len(m.slow) == 0:
			return false
		case len(m.still) > 0 && standing < mostStanding:
			standing++
		case *replays < mostReplays:
			*replays++
		default:
			return false
		}
		return true
	}
	for again() {
		t.Logf("played again, for this machine may have been too busy: %s (the witness: %q)\n%s", strings.Join(m.slow, "; "), m.still, m.line())
		m = w.run(t, s)
		m.again = true
	}
	t.Log("\n" + m.line())
	for _, f := range append(m.failed, m.slow...) {
		t.Errorf("%s (the witness: %q; permits by window: %v)", f, m.still, m.used)
	}
	return m.line()
}

// TestScenarios plays those whose names match E2E, a regular expression, and
// writes the table to the file E2E_TABLE names.
func TestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("namespaces, nftables and frozen disks need root")
	}
	chosen := regexp.MustCompile(os.Getenv("E2E"))
	w := newWorld(t)
	var lines []string
	replays := 0
	t.Log("\n" + head())
	for _, s := range scenarios {
		name := s.name + " (" + string(s.outage) + ")"
		if !chosen.MatchString(name) {
			continue
		}
		t.Run(strings.NewReplacer("/", "-", " ", "_").Replace(name), func(t *testing.T) {
			lines = append(lines, w.play(t, s, &replays))
		})
		w.setTest(t)
	}
	if len(lines) == 0 {
		t.Fatalf("E2E=%s matches no scenario", chosen)
	}
	if file := os.Getenv("E2E_TABLE"); file != "" {
		if err := writeTable(file, lines); err != nil {
			t.Fatal(err)
		}
	}
}
