package live_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests; each has a prefix of its own.
var server *embedded.Cluster

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	await.Together(2) // fleets that take all they can
	var err error
	if server, err = embedded.Start(embedded.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(server.Close(), await.Leaks()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience bounds a wait: far more than any needs, also on a machine that for
// minutes has much else to do.
const patience = 3 * time.Minute

const ms = time.Millisecond

// provider is the one that most tests use.
const provider = "p"

// group is a fleet under greedy load, whose trace is judged in the end.
type group struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	ttl    time.Duration // of leases; long, so that nobody is given up by chance
	admin  *admin.Client

	ctx  context.Context // until halt
	halt context.CancelFunc
	load sync.WaitGroup

	issued issued
	trace  *trace.Writer // of all that join by joinAs
}

// newGroup starts with a policy in force and nobody to use it. A prefix is never used
// twice, even with -count: some tests leave keys that nobody removes.
func newGroup(t *testing.T, client *clientv3.Client, p quota.Policy) *group {
	t.Helper()
	g := &group{t: t, client: client, prefix: "/" + t.Name() + "-" + rand.Text()[:8] + "/", ttl: time.Minute}
	operator, err := admin.New(g.client, admin.Options{Prefix: g.prefix, Author: "test", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	g.admin = operator
	g.ctx, g.halt = context.WithCancel(context.Background())
	g.traced()
	t.Cleanup(g.stop)
	g.set(p)
	return g
}

// traced has the group leave a trace, and judges it when all its sessions are closed: no
// window may exceed the bound of the views that were committed, and some must be held to it.
func (g *group) traced() {
	dir := g.t.TempDir()
	var err error
	if g.trace, err = trace.Create(dir, 0, func(err error) { g.t.Error(err) }); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := g.trace.Close(); err != nil {
			g.t.Error(err)
		}
		r := trace.JudgeDir(dir)
		g.t.Log(r)
		// Of windows in which a key that somebody wrote counts, nothing can be decided.
		if r.Over > 0 || r.Problem != "" || r.Held == 0 {
			g.t.Fail()
		}
	})
}

// stop ends the load.
func (g *group) stop() {
	g.halt()
	g.load.Wait()
}

// loaded returns a group of n members that issue all permits of each window of 200 ms.
func loaded(t *testing.T, p quota.Policy, n int, permits int64) (*group, []*member) {
	t.Helper()
	g := newGroup(t, etcdtest.NewClient(t, server), p)
	all := g.join(n)
	g.ready(all...)
	g.awaitFull(permits)
	return g, all
}

// set writes a policy.
func (g *group) set(p quota.Policy) {
	g.t.Helper()
	if _, err := g.admin.Put(g.t.Context(), provider, p); err != nil {
		g.t.Fatal(err)
	}
}

// member is one instance of the group.
type member struct {
	g       *group
	session *coordinator.Session
	limiter *consumer.Limiter
	ctx     context.Context // until its load is stopped
	stop    context.CancelFunc
}

// join starts n instances, each with greedy load.
func (g *group) join(n int) []*member {
	g.t.Helper()
	var all []*member
	for range n {
		all = append(all, g.joinAs(g.client, coordinator.Options{}))
	}
	return all
}

func (g *group) joinAs(client *clientv3.Client, o coordinator.Options) *member {
	g.t.Helper()
	m := &member{g: g}
	o.Prefix, o.Logger, o.TTL = g.prefix, quiet, g.ttl
	g.await("an instance joins", func() bool { // again where etcd takes its time
		var err error
		m.session, err = coordinator.Join(g.t.Context(), client, o)
		if err != nil && !errors.Is(err, coordinator.ErrUnreachable) {
			g.t.Fatal(err)
		}
		return err == nil
	})
	g.t.Cleanup(func() { _ = m.session.Close() })
	var err error
	if m.limiter, err = consumer.Open(g.t.Context(), g.trace.Wrap(m.session), provider, consumer.Options{Logger: quiet}); err != nil {
		g.t.Fatal(err)
	}
	m.ctx, m.stop = context.WithCancel(g.ctx)
	for range 2 {
		g.load.Go(m.consume)
	}
	return m
}

// consume takes all that it can get, until its load or its limiter ends.
func (m *member) consume() {
	for {
		p, err := m.limiter.Take(m.ctx, 1, consumer.Forever)
		switch {
		case err == nil:
			m.g.issued.add(p)
			continue
		case m.ctx.Err() != nil || errors.Is(err, consumer.ErrClosed):
			return
		}
		select { // no policy, or stale
		case <-m.ctx.Done():
			return
		case <-time.After(5 * ms):
		}
	}
}

// ready waits until all may issue permits.
func (g *group) ready(all ...*member) {
	g.t.Helper()
	for _, m := range all {
		g.await("a member is ready", func() bool { return m.limiter.Status().State == quota.StateActive })
	}
}

// await waits for a condition.
func (g *group) await(what string, condition func() bool) {
	g.t.Helper()
	await.Until(g.t, what, condition)
}

// pass lets the load go on for a while.
func (g *group) pass(d time.Duration) { <-time.After(d) }

// awaitFull waits until a window that starts from now on has n permits.
func (g *group) awaitFull(n int64) {
	g.t.Helper()
	from := time.Now().UnixNano()
	g.await(fmt.Sprintf("a window with all %d permits", n), func() bool { return g.issued.full(from, n) > 0 })
}

// exact is a policy with which the sum is exact whatever the machine does:
// an instance that stalls for too long issues nothing.
func exact(t *testing.T, text string, settle time.Duration) quota.Policy {
	t.Helper()
	l, err := quota.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return quota.Policy{Limits: l, Timing: quota.Timing{Settle: settle, ClockError: 20 * ms}, Outage: quota.OutageStop}
}
