//go:build e2e && linux

package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	forTime = flag.Duration("for", time.Second, "TestByChance begins rounds for this long, one at least")
	seed    = flag.Uint64("seed", 0, "of TestByChance's first round, the next round has the next one; 0: one by chance")
)

// roundTime is for how long faults begin in a round.
const roundTime = 30 * time.Second

// chance is something that may happen to a target. n is a number by chance, by which it chooses; end, if there is one,
// gets the same.
type chance struct {
	name       string
	begin, end func(r *run, n int)
}

// targets are what things happen to: one at a time to each, to all of them beside each other.
var targets = []struct {
	name string
	all  []chance
}{{"host 1", onHost(0)}, {"host 2", onHost(1)}, {"host 3", onHost(2)}, {"etcd", onEtcd}, {"policy", onPolicy}, {"store", onStore}}

// onHost are faults of a worker's host, and of one or all of its instances.
func onHost(h int) []chance {
	on := func(do func(r *run, i, n int)) func(r *run, n int) {
		return func(r *run, n int) {
			for _, i := range all(h)[n%each:] {
				do(r, i, n)
			}
		}
	}
	launch := on(func(r *run, i, _ int) { r.launch(i) })
	return []chance{
		{"instances killed", on(func(r *run, i, _ int) { r.kill(i) }), launch},
		{"instances end", on(func(r *run, i, _ int) { r.close(i) }), launch},
		{"instances stopped", on(func(r *run, i, _ int) { _ = r.instances[i].Pause() }), on(func(r *run, i, _ int) { _ = r.instances[i].Resume() })},
		{"the provider answers 429", on(func(r *run, i, n int) { _ = r.instances[i].Send(time.Duration(n%600) * time.Millisecond) }), nil},
		{"cut off from etcd's members", func(r *run, n int) { r.workers[h].cut(members(r, n)...) }, func(r *run, _ int) { r.workers[h].heal() }},
		{"without a link", func(r *run, _ int) { r.workers[h].unplug() }, func(r *run, _ int) { r.workers[h].plug() }},
		{"a slow link", func(r *run, _ int) { r.links(slow, r.workers[h]) }, func(r *run, _ int) { r.links(link{}, r.workers[h]) }},
	}
}

// onEtcd are faults of one, two or all members of etcd.
var onEtcd = []chance{
	{"killed", func(r *run, n int) {
		for _, i := range some(n) {
			r.etcd.members[i].Kill()
		}
	}, func(r *run, n int) { r.etcd.restart(some(n)...) }},
	{"gets SIGTERM", func(r *run, n int) { r.etcd.terminate(some(n)...) }, func(r *run, n int) {
		r.etcd.ended(some(n)...)
		r.etcd.restart(some(n)...)
	}},
	{"stopped", func(r *run, n int) {
		for _, i := range some(n) {
			_ = r.etcd.members[i].Pause()
		}
	}, func(r *run, n int) {
		for _, i := range some(n) {
			_ = r.etcd.members[i].Resume()
		}
	}},
	{"cut from its peers", func(r *run, n int) {
		i := some(n)[0]
		for _, o := range r.etcd.followers(i) {
			r.etcd.hosts[i].cut(r.etcd.hosts[o])
		}
	}, func(r *run, n int) { r.etcd.hosts[some(n)[0]].heal() }},
	{"slow links", func(r *run, n int) { r.links(slow, members(r, n)...) }, func(r *run, n int) { r.links(link{}, members(r, n)...) }},
	{"a disk frozen", func(r *run, n int) {
		disk := r.etcd.dirs[some(n)[0]]
		r.t.Cleanup(func() { _ = exec.Command("fsfreeze", "-u", disk).Run() }) // if it is frozen still
		command(r.t, "fsfreeze", "-f", disk)
	}, func(r *run, n int) { command(r.t, "fsfreeze", "-u", r.etcd.dirs[some(n)[0]]) }},
}

// onPolicy are changes by an operator. The limit is never above that of the scenario.
var onPolicy = []chance{
	{"the limit changes", func(r *run, n int) { r.put(r.less(n)) }, whole},
	{"a change is announced", func(r *run, n int) {
		p := r.policy
		p.Next = []quota.LimitChange{{From: time.Now().Add(time.Duration(n%3000) * time.Millisecond), Limits: r.less(n).Limits}}
		r.put(p)
	}, whole},
	{"paused", func(r *run, _ int) {
		p := r.policy
		p.Mode = quota.ModePause
		r.put(p)
	}, whole},
}

// onStore is what others do to the store.
var onStore = []chance{
	{"compacted", func(r *run, _ int) {
		r.within(func(ctx context.Context) {
			if now, err := r.client.Get(ctx, "x", clientv3.WithCountOnly()); err == nil {
				_, _ = r.client.Compact(ctx, now.Header.Revision)
			}
		})
	}, nil},
	{"a lease ends", func(r *run, n int) {
		r.within(func(ctx context.Context) {
			if all, err := r.client.Leases(ctx); err == nil && len(all.Leases) > 0 {
				_, _ = r.client.Revoke(ctx, all.Leases[n%len(all.Leases)].ID)
			}
		})
	}, nil},
	{"an instance's key is deleted", func(r *run, n int) {
		r.within(func(ctx context.Context) {
			layout, _ := keys.New("")
			if all, err := r.client.Get(ctx, layout.Instances(r.configs[0].Provider), clientv3.WithPrefix(), clientv3.WithKeysOnly()); err == nil && all.Count > 0 {
				_, _ = r.client.Delete(ctx, string(all.Kvs[n%len(all.Kvs)].Key))
			}
		})
	}, nil},
}

// some are the numbers of one, two or all of three members.
func some(n int) (which []int) {
	for k := range 1 + n/3%3 {
		which = append(which, (n+k)%3)
	}
	return which
}

// members are their hosts.
func members(r *run, n int) (hosts []*host) {
	for _, i := range some(n) {
		hosts = append(hosts, r.etcd.hosts[i])
	}
	return hosts
}

// less is the policy with half of the limit or more.
func (r *run) less(n int) quota.Policy {
	p := r.policy
	p.Limits = []quota.Limit{{Permits: r.limit - int64(n)%(r.limit/2), Window: window}}
	return p
}

// whole has the limit be that of the scenario again.
func whole(r *run, _ int) { r.put(r.policy) }

// put sets the policy, unless etcd is away.
func (r *run) put(p quota.Policy) {
	r.within(func(ctx context.Context) { _, _ = r.admin.Put(ctx, r.configs[0].Provider, p) })
}

// within does what may fail, since etcd may be away.
func (r *run) within(do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	do(ctx)
}

// act is one thing that happens, from a round's beginning on.
type act struct {
	at   time.Duration
	name string
	do   func(r *run)
}

// plan is what happens in a round, by its seed alone.
func plan(seed uint64) (acts []act) {
	rng := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	for _, t := range targets {
		for at := upTo(10 * time.Second); at < roundTime; at += upTo(10 * time.Second) {
			c, n := t.all[rng.IntN(len(t.all))], rng.IntN(1<<16)
			acts = append(acts, act{at, t.name + ": " + c.name, func(r *run) { c.begin(r, n) }})
			if c.end != nil {
				at += time.Second + upTo(8*time.Second)
				acts = append(acts, act{at, t.name + ": " + c.name + ": over", func(r *run) { c.end(r, n) }})
			}
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	return acts
}

// round is a scenario of a seed. Every second one has half of the fleet borrow. Half of the instances hand their share
// over when they end.
func round(seed uint64) scenario {
	s := scenario{name: fmt.Sprint("seed ", seed), outage: quota.OutageStop, most: 1, fault: func(r *run) {
		began := time.Now()
		for _, a := range plan(seed) {
			wait(time.Until(began.Add(a.at)))
			r.t.Logf("%5.1f s: %s", time.Since(began).Seconds(), a.name)
			a.do(r)
		}
		// The provider may be paused still, and then nobody is ready: put did nothing while etcd was away.
		if _, err := r.admin.Put(r.t.Context(), r.configs[0].Provider, r.policy); err != nil {
			r.t.Fatal(err)
		}
		r.awaitReady(all(0, 1, 2)...)
		wait(leaseTTL + window) // until the leases of those that were killed have ended
	}}
	s.configure = func(w *world, c *instanceConfig) {
		c.HandsOver = c.ID > fleet/2
		if seed%2 == 0 {
			borrows(w, c)
		}
	}
	if seed%2 == 0 {
		s.least = lent
	}
	return s
}

// TestByChance plays rounds of faults, each by the next seed, until -for has passed or one fails. They are judged as
// scenarios are: no window over its limit, nor over the proved bound by the traces, and all is issued again in the end.
func TestByChance(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("namespaces, nftables and frozen disks need root")
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	w := newWorld(t)
	replays := 0
	for end := time.Now().Add(*forTime); !t.Failed(); *seed++ {
		t.Run(fmt.Sprint("seed_", *seed), func(t *testing.T) {
			t.Logf("the same by chance, not by time: go test -tags e2e -run %s ./test/faults -seed %d", "TestByChance", *seed)
			w.play(t, round(*seed), &replays)
		})
		w.setTest(t)
		if time.Now().After(end) {
			return
		}
	}
}
