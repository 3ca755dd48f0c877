package live_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

var seed = flag.Uint64("seed", 0, "of TestARandomHistory; 0: one by chance")

const (
	historyTime   = 20 * time.Second
	mostInstances = 8
)

// history is a fleet to which things happen by chance. Each instance reaches etcd over a
// link of its own.
type history struct {
	*group
	cluster *embedded.Cluster
	r       *rand.Rand
	policy  quota.Policy
	all     []*instance
	crashed []*instance
	later   sync.WaitGroup
}

type instance struct {
	*member
	link *Link
}

// actions are what may happen, as often as it stands here.
var actions = []struct {
	name string
	do   func(h *history)
}{
	{"limit", (*history).limit}, {"limit", (*history).limit}, {"announce", (*history).announce},
	{"pause", (*history).pause}, {"join", (*history).join}, {"join", (*history).join}, {"join", (*history).join},
	{"leave", (*history).leave}, {"close", (*history).close}, {"crash", (*history).crash}, {"cut", (*history).cut}, {"hang", (*history).hang},
	{"lose lease", (*history).loseLease}, {"remove", (*history).remove}, {"compact", (*history).compact}, {"etcd is killed", (*history).restart},
	{"etcd stands still", (*history).freeze}, {"drain", (*history).drain}, {"push back", (*history).pushBack},
}

// TestARandomHistory lets by chance happen on a real etcd, in real time, most of what
// test/histories plays on a model of one. No window is over, as the trace tells,
// and when all is well again the fleet issues all that it may.
func TestARandomHistory(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("the same by chance, not by time: go test ./test/live -run %s -seed %d", t.Name(), *seed)
	cluster, client := etcdtest.New(t, embedded.Options{Processes: true})
	h := &history{cluster: cluster, r: rand.New(rand.NewPCG(*seed, 0)), policy: exact(t, "60/200ms", time.Second)}
	h.group = newGroup(t, client, h.policy)
	h.ttl = 3 * time.Second
	for range 3 {
		h.join()
	}
	for end := time.Now().Add(historyTime); time.Now().Before(end); h.pass(h.upTo(400 * ms)) {
		a := actions[h.r.IntN(len(actions))]
		t.Logf("%s, of %d instances", a.name, len(h.all))
		a.do(h)
	}
	h.heal()
}

// heal ends all that is wrong, and waits until the fleet is who is left, and issues all.
func (h *history) heal() {
	for _, i := range append(h.all, h.crashed...) {
		i.link.Mend()
	}
	for _, i := range h.crashed {
		_ = i.session.Close() // or its lease ends
	}
	h.later.Wait()
	for len(h.all) < 2 {
		h.join()
	}
	h.set(exact(h.t, "60/200ms", time.Second))
	h.await("the fleet is who is left", func() bool {
		f, err := feed.Inside(h.admin).Fleet(h.t.Context(), provider)
		return err == nil && len(f.Instances) == len(h.all)
	})
	for _, i := range h.all {
		h.ready(i.member)
	}
	h.awaitFull(60)
}

func (h *history) upTo(d time.Duration) time.Duration { return time.Duration(h.r.Int64N(int64(d))) }

// some returns one of the instances.
func (h *history) some() *instance { return h.all[h.r.IntN(len(h.all))] }

// gone takes one out of those to whom more may happen; nil if it is the last.
func (h *history) gone() *instance {
	if len(h.all) == 1 {
		return nil
	}
	n := h.r.IntN(len(h.all))
	i := h.all[n]
	h.all = append(h.all[:n:n], h.all[n+1:]...)
	return i
}

// after lets something happen in a while.
func (h *history) after(d time.Duration, do func()) {
	h.later.Go(func() {
		h.pass(d)
		do()
	})
}

func (h *history) limit() {
	h.policy.Limits = []quota.Limit{{Permits: 10 + h.r.Int64N(90), Window: h.policy.Limits[0].Window}}
	h.policy.Next, h.policy.Mode = nil, ""
	h.set(h.policy)
}

func (h *history) announce() {
	h.policy.Next = []quota.LimitChange{{From: time.Now().Add(h.upTo(3 * time.Second)),
		Limits: []quota.Limit{{Permits: 10 + h.r.Int64N(90), Window: h.policy.Limits[0].Window}}}}
	h.set(h.policy)
}

func (h *history) pause() {
	h.policy.Mode = quota.ModePause
	h.set(h.policy)
	h.pass(h.upTo(time.Second))
	h.policy.Mode = ""
	h.set(h.policy)
}

func (h *history) join() {
	if len(h.all) == mostInstances {
		return
	}
	link, client := h.linked()
	o := coordinator.Options{Name: string(rune('a' + h.r.IntN(3)))}
	h.all = append(h.all, &instance{h.joinAs(client, o), link})
}

// leave and close may take the time that they take while etcd is out of reach.
func (h *history) leave() {
	if i := h.gone(); i != nil {
		h.later.Go(func() { _ = i.session.Shutdown(context.Background()) })
	}
}

func (h *history) close() {
	if i := h.gone(); i != nil {
		h.later.Go(func() { _ = i.session.Close() })
	}
}

// crash is for etcd and the others what it is when a process is gone: its key stays until
// its lease ends, and it issues nothing.
func (h *history) crash() {
	if i := h.gone(); i != nil {
		i.stop()
		i.link.Hold()
		h.crashed = append(h.crashed, i)
	}
}

func (h *history) cut() {
	i := h.some()
	i.link.Cut()
	h.after(h.upTo(4*time.Second), i.link.Mend)
}

func (h *history) hang() {
	i := h.some()
	i.link.Hold()
	h.after(h.upTo(4*time.Second), i.link.Mend)
}

// loseLease lets etcd end somebody's lease.
func (h *history) loseLease() {
	if l, err := h.client.Leases(h.t.Context()); err == nil && len(l.Leases) > 0 {
		_, _ = h.client.Revoke(h.t.Context(), l.Leases[h.r.IntN(len(l.Leases))].ID)
	}
}

// remove has somebody delete an instance's key.
func (h *history) remove() {
	_, _ = h.client.Delete(h.t.Context(), fmt.Sprint(h.prefix, "providers/", provider, "/instances/", url.PathEscape(h.some().limiter.Status().Incarnation)))
}

func (h *history) compact() {
	if r, err := h.client.Get(h.t.Context(), "x", clientv3.WithCountOnly()); err == nil {
		_, _ = h.client.Compact(h.t.Context(), r.Header.Revision)
	}
}

func (h *history) restart() {
	h.aside(h.cluster.Kill(0))
	h.pass(h.upTo(1500 * ms))
	h.aside(h.cluster.Restart(0))
}

func (h *history) freeze() {
	h.aside(h.cluster.Pause(0))
	h.pass(h.upTo(1500 * ms))
	h.aside(h.cluster.Resume(0))
}

// aside fails the test if what is not of Quotient does.
func (h *history) aside(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) drain() { h.some().limiter.PauseUntil(time.Now().Add(h.upTo(time.Second))) }

func (h *history) pushBack() { h.some().limiter.Throttled(h.upTo(600*ms), "") }
