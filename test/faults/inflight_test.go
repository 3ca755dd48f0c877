//go:build e2e && linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// callHold is the hold of the limits, short so that a fault can last for longer, and not so short that a busy machine
	// has too little time in one of its parts.
	callHold = 16 * time.Second
	// openCalls is the limit, and callersEach how many callers of it an instance has: together more than the limit.
	openCalls, callersEach = 30, 9
	// moving is how many places may be on their way from an instance to another where all of them are used.
	moving = 3
)

// flight is a fleet with limits in flight, one of each outage rule, on which one fault after another is played.
type flight struct {
	*world
	counter   *counter
	instances []*process
	configs   []callersConfig
	slow      []string // what a machine that is too busy would fail at as well
}

// rules are the outage rules of the limits, by number.
var rules = []quota.Outage{quota.OutageHold, quota.OutageStop}

func (f *flight) launch(which ...int) {
	for _, i := range which {
		f.instances[i] = f.workers[i/each].run("callers", f.configs[i], f.log)
	}
	for _, i := range which {
		if err := f.instances[i].await(30 * time.Second); err != nil {
			f.t.Fatalf("instance %d: %v", i+1, err)
		}
	}
}

// ids are those of the instances on hosts.
func ids(hosts ...int) (all []int64) {
	for i := range each * len(hosts) {
		all = append(all, int64(hosts[i/each]*each+i%each+1))
	}
	return all
}

// full waits until these instances have all places of each limit together, but for those that move, and each has some.
// It says when that was.
func (f *flight) full(what string, within time.Duration, from time.Time, of []int64) {
	f.t.Helper()
	for i, rule := range rules {
		f.first(i, fmt.Sprintf("%s: %s: all places are used", rule, what), within, from, func(by map[int64]int64) bool {
			sum := int64(0)
			for _, id := range of {
				sum += by[id]
			}
			return sum >= openCalls-moving
		})
		for _, id := range of {
			f.first(i, fmt.Sprintf("%s: %s: instance %d has calls", rule, what, id), within, from, func(by map[int64]int64) bool { return by[id] >= openCalls/fleet-moving })
		}
	}
}

func (f *flight) first(of int, what string, within time.Duration, from time.Time, holds func(by map[int64]int64) bool) {
	f.t.Helper()
	for {
		after := f.counter.first(of, from, holds)
		switch {
		case after > within:
			f.slow = append(f.slow, fmt.Sprintf("%s after %v, and not within %v", what, after.Round(callTick), within))
			return
		case after >= 0:
			f.t.Logf("%s after %v", what, after.Round(callTick))
			return
		case time.Since(from) > within+time.Minute:
			f.t.Fatalf("not seen for %v: %s", time.Since(from), what)
		}
		wait(callTick)
	}
}

// judge says what was counted up to now.
func (f *flight) judge(t *testing.T) {
	f.counter.mu.Lock()
	defer f.counter.mu.Unlock()
	for i, rule := range rules {
		l := &f.counter.limits[i]
		t.Logf("%s: %d calls, at most %d open of %d, %.2f on average; %d came after the end of their permits", rule, l.made, l.most, l.limit, float64(l.used)/float64(l.last-l.from), l.late)
		for _, text := range l.over {
			t.Errorf("%s: %s", rule, text)
		}
		l.over, l.made, l.most, l.used, l.from = nil, 0, 0, 0, l.last
	}
}

// placesBack is within what time the places of a crashed instance are back.
const placesBack = callHold * 3 / 2

// callPart is for how long an instance begins calls at most by what it has in hand.
const callPart = callHold / quota.HoldParts

type callFault struct {
	name  string
	fault func(f *flight)
}

// callFaults are played in this order, on one fleet.
var callFaults = []callFault{
	{"a third of the instances killed", func(f *flight) {
		killed := time.Now()
		f.kill(all(0)...)
		f.full("by those that are left", placesBack, killed, ids(1, 2))
		f.launch(all(0)...)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"a third of the instances stopped (SIGSTOP) for longer than the lease", func(f *flight) {
		f.signal((*child.Process).Pause)
		wait(leaseTTL + 1500*time.Millisecond)
		f.signal((*child.Process).Resume)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"a third of the instances stopped (SIGSTOP) for longer than the hold", func(f *flight) {
		stopped := time.Now()
		f.signal((*child.Process).Pause)
		f.full("by the others", placesBack, stopped, ids(1, 2))
		wait(time.Until(stopped.Add(callHold + 2*time.Second)))
		f.signal((*child.Process).Resume)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"a third of the instances cut off from etcd (nftables) for longer than the hold", func(f *flight) {
		cut := time.Now()
		f.workers[0].cut(f.etcd.hosts...)
		f.full("by those in reach of etcd", placesBack, cut, ids(1, 2))
		wait(time.Until(cut.Add(callHold + 2*time.Second)))
		f.workers[0].heal()
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"a third of the instances without a link for 3 s", func(f *flight) {
		f.workers[0].unplug()
		wait(3 * time.Second)
		f.workers[0].plug()
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"20 ms ± 10 ms of delay and 1% loss on every link", func(f *flight) {
		f.slowLinks()
		wait(8 * time.Second)
		f.calmLinks()
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"etcd's leader killed, back after 5 s", func(f *flight) {
		l := f.etcd.leader(f.client)
		f.etcd.members[l].Kill()
		wait(5 * time.Second)
		f.etcd.restart(l)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"all of etcd killed, back after 8 s", func(f *flight) {
		f.away(func() {
			for _, m := range f.etcd.members {
				m.Kill()
			}
		})
		f.etcd.restart(f.etcd.all()...)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"all of etcd gets SIGTERM, back after 8 s", func(f *flight) {
		f.away(func() { f.etcd.terminate(f.etcd.all()...) })
		f.etcd.ended(f.etcd.all()...)
		f.etcd.restart(f.etcd.all()...)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"clocks of a third are off by -5 s and +5 s, with NTP", func(f *flight) {
		f.kill(all(0)...)
		for i, skew := range []time.Duration{-5 * time.Second, 5 * time.Second} {
			f.configs[i].NTP, f.configs[i].Skew = f.times.addresses(), skew
		}
		f.launch(all(0)...)
		f.full("by all", placesBack, time.Now(), ids(0, 1, 2))
	}},
	{"all instances killed, and started at once", func(f *flight) {
		f.kill(all(0, 1, 2)...)
		killed := time.Now()
		f.launch(all(0, 1, 2)...)
		f.full("by all", placesBack+rejoined, killed, ids(0, 1, 2))
	}},
	{"etcd restored from a backup that is older than all calls", func(f *flight) {
		for _, m := range f.etcd.members {
			m.Kill()
		}
		f.etcd.restore()
		f.etcd.restart(f.etcd.all()...)
		back := time.Now()
		wait(rejoined) // by then nothing is in hand of the store that is no more
		noticed := time.Now()
		f.full("by all", placesBack+rejoined, noticed, ids(0, 1, 2))
		for i, rule := range rules {
			// A call that the backup lacks began at the latest when a part ended that ran when etcd was killed.
			if n := f.counter.begun(i, noticed, back.Add(callPart+callHold)); n > 0 {
				f.t.Errorf("%s: calls began in %d ticks before what the backup lacks was over", rule, n)
			}
		}
	}},
}

// rejoined is within what time instances are back that had to join anew.
const rejoined = leaseTTL + 3*time.Second

func (f *flight) kill(which ...int) {
	for _, i := range which {
		f.instances[i].Kill()
	}
}

// signal signals the instances of a host.
func (f *flight) signal(send func(*child.Process) error) {
	for _, i := range all(0) {
		if err := send(f.instances[i].Process); err != nil {
			f.t.Error(err)
		}
	}
}

// away ends etcd, and looks for 8 s at what begins.
func (f *flight) away(end func()) {
	end()
	gone := time.Now()
	wait(8 * time.Second)
	inHand := 0 // under both rules: stop begins later than such a part
	for i, rule := range rules {
		held, later := f.counter.begun(i, gone.Add(callTick), gone.Add(callPart)), f.counter.begun(i, gone.Add(callPart+time.Second), time.Now())
		f.t.Logf("%s: calls began in %d ticks of the eighth of the hold after etcd was gone, and in %d later", rule, held, later)
		if inHand += held; later > 0 {
			f.t.Errorf("%s: calls began by what was in hand for longer than an eighth of the hold", rule)
		}
	}
	if inHand == 0 {
		f.t.Errorf("no call began by what was in hand")
	}
}

// A provider that counts open calls never sees more than the limit, whatever happens to instances, to the network and
// to etcd.
func TestCallsInFlight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("namespaces and nftables need root")
	}
	chosen := regexp.MustCompile(os.Getenv("E2E"))
	faults := slices.DeleteFunc(slices.Clone(callFaults), func(f callFault) bool { return !chosen.MatchString(f.name) })
	if len(faults) == 0 {
		t.Logf("E2E=%s matches no fault", chosen)
		return
	}
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "provider")
	f := &flight{world: w, instances: make([]*process, fleet)}
	var providers []string
	var limits []int64
	for _, rule := range rules {
		p := quota.Policy{Limits: []quota.Limit{{Permits: openCalls, Window: callHold, InFlight: true}}, Outage: rule}
		providers, limits = append(providers, "calls/"+string(rule)), append(limits, openCalls)
		if _, err := w.admin.Put(t.Context(), providers[len(providers)-1], p); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range w.workers {
		h.owner = t // what a fault has started stays for those that follow
	}
	f.counter = newCounter(t, socket, limits...)
	for _, m := range w.etcd.members {
		m.Kill()
	}
	w.etcd.backup()
	w.etcd.restart(w.etcd.all()...)
	for i := range fleet {
		f.configs = append(f.configs, callersConfig{
			Providers: providers, Callers: callersEach,
			instanceConfig: instanceConfig{Name: fmt.Sprintf("w%d-%d", i/each+1, i%each+1), ID: int64(i + 1), Endpoints: w.etcd.endpoints(), Socket: socket},
		})
	}
	f.launch(all(0, 1, 2)...)
	f.full("at first", placesBack, time.Now(), ids(0, 1, 2))
	f.judge(t)
	replays := 0
	for _, s := range faults {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			fmt.Fprintf(w.log, "\n=== calls in flight: %s\n", s.name)
			w.setTest(t)
			s.fault(f)
			f.judge(t)
			for ; replays < mostReplays && len(f.slow) > 0 && !t.Failed(); replays++ {
				t.Logf("played again, for this machine may have been too busy: %s", strings.Join(f.slow, "; "))
				f.slow = nil
				s.fault(f)
				f.judge(t)
			}
			for _, text := range f.slow {
				t.Error(text)
			}
			f.slow = nil
		})
		w.setTest(t)
	}
}
