package live_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests; each has a prefix of its own.
var server *etcdtest.Cluster

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	etcdtest.RunIfMember()
	await.Together()
	var err error
	if server, err = etcdtest.Start(etcdtest.Options{}); err != nil {
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

// provider is the one that most tests use.
const provider = "p"

// group is a fleet under greedy load, with all permits that it was issued.
type group struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	ttl    time.Duration // of leases; long, so that nobody is given up by chance
	admin  *coordinator.Admin

	ctx  context.Context // until halt
	halt context.CancelFunc
	load sync.WaitGroup

	ledger ledger
	trace  *trace.Writer // of all that join by joinAs
}

// newGroup starts with a policy in force and nobody to use it. lengths are all
// window lengths that the test will have limits of.
func newGroup(t *testing.T, p quota.Policy, lengths ...time.Duration) *group {
	t.Helper()
	return newGroupOn(t, etcdtest.NewClient(t, server), p, lengths...)
}

// newGroupOn is newGroup on another etcd. A prefix is never used twice, even with -count:
// some tests leave keys that nobody removes.
func newGroupOn(t *testing.T, client *clientv3.Client, p quota.Policy, lengths ...time.Duration) *group {
	t.Helper()
	g := &group{t: t, client: client, prefix: "/" + t.Name() + "-" + rand.Text()[:8] + "/", ttl: time.Minute}
	g.ledger.lengths = lengths
	g.ledger.issued, g.ledger.unsure = map[quota.Window]int64{}, map[quota.Window]int64{}
	admin, err := coordinator.NewAdmin(g.client, coordinator.AdminOptions{Prefix: g.prefix, Author: "test", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	g.admin = admin
	g.ctx, g.halt = context.WithCancel(context.Background())
	g.traced()
	t.Cleanup(g.stop)
	g.set(p)
	return g
}

// traced has the group leave a trace, and judges it when all its sessions are closed: by
// the bound of the views that were committed, not by the policies alone.
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
		if r.Over > 0 || r.Problem != "" {
			g.t.Fail()
		}
	})
}

// stop ends the load; permits that were issued are counted then.
func (g *group) stop() {
	g.halt()
	g.load.Wait()
}

// end stops the load; no window may have been over.
func (g *group) end() {
	g.t.Helper()
	g.stop()
	g.ledger.never(g.t)
}

// loaded returns a group of n members that issue all permits of each window of 200 ms.
func loaded(t *testing.T, p quota.Policy, n int, permits int64) (*group, []*member) {
	t.Helper()
	g := newGroup(t, p, 200*ms)
	all := g.join(n)
	g.ready(all...)
	g.awaitFull(200*ms, permits)
	return g, all
}

// set writes a policy, and the time at which it was, into the ledger.
func (g *group) set(p quota.Policy) {
	g.t.Helper()
	g.change(&p, func() error {
		_, err := g.admin.Put(g.t.Context(), provider, p, coordinator.AnyRevision)
		return err
	})
}

// remove deletes the policy.
func (g *group) remove() {
	g.t.Helper()
	g.change(nil, func() error {
		_, err := g.admin.Delete(g.t.Context(), provider, "test", coordinator.AnyRevision)
		return err
	})
}

func (g *group) change(p *quota.Policy, write func() error) {
	g.t.Helper()
	done := g.ledger.changing(p)
	if err := write(); err != nil {
		g.t.Fatal(err)
	}
	done()
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
		all = append(all, g.joinBy(g.client))
	}
	return all
}

func (g *group) joinBy(client *clientv3.Client) *member {
	g.t.Helper()
	return g.joinAs(client, coordinator.Options{})
}

func (g *group) joinAs(client *clientv3.Client, o coordinator.Options) *member {
	g.t.Helper()
	m := &member{g: g}
	o.Prefix, o.Logger, o.TTL = g.prefix, quiet, g.ttl
	m.session = g.session(client, o)
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

// session joins, again where etcd takes its time.
func (g *group) session(client *clientv3.Client, o coordinator.Options) (s *coordinator.Session) {
	g.t.Helper()
	g.await("an instance joins", func() bool {
		var err error
		s, err = coordinator.Join(g.t.Context(), client, o)
		if err != nil && !errors.Is(err, coordinator.ErrUnreachable) {
			g.t.Fatal(err)
		}
		return err == nil
	})
	return s
}

// linked returns a client that reaches etcd over a link.
func (g *group) linked() (*Link, *clientv3.Client) {
	g.t.Helper()
	u, err := url.Parse(server.Endpoints()[0])
	if err != nil {
		g.t.Fatal(err)
	}
	link, err := NewLink(u.Host)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = link.Close() })
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{link.Address()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = client.Close() })
	return link, client
}

// consume takes all that it can get, until its load or its limiter ends.
func (m *member) consume() {
	clock := m.session.Clock()
	for {
		before := clock.Wall()
		p, err := m.limiter.Take(m.ctx, 1, 0)
		if errors.Is(err, consumer.ErrLimited) {
			before = 0 // when it will be issued is not known so well
			p, err = m.limiter.Take(m.ctx, 1, consumer.Forever)
		}
		switch {
		case err == nil:
			m.g.ledger.add(p, before, clock.Wall())
			continue
		case m.ctx.Err() != nil || errors.Is(err, consumer.ErrClosed):
			return
		}
		select { // no policy, or stale
		case <-m.ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
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

// passes lets the load go on until a wall-clock instant.
func (g *group) passes(wall int64) { <-time.After(time.Until(time.Unix(0, wall))) }

// awaitFull waits until a window that starts from now on is used up to its
// total, and returns it.
func (g *group) awaitFull(length time.Duration, total int64) quota.Window {
	g.t.Helper()
	from, full := time.Now().UnixNano(), quota.Window{}
	g.await(fmt.Sprintf("a window of %v with all %d permits", length, total), func() bool {
		var ok bool
		full, ok = g.ledger.full(length, from, total)
		return ok
	})
	return full
}

func limits(t *testing.T, text string) []quota.Limit {
	t.Helper()
	l, err := quota.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// exact is a policy with which the sum is exact whatever the machine does:
// an instance that stalls for too long issues nothing.
func exact(t *testing.T, text string, settle time.Duration) quota.Policy {
	t.Helper()
	return quota.Policy{Limits: limits(t, text), Settle: settle, ClockError: 20 * time.Millisecond, Outage: quota.OutageStop}
}

// mentions reports whether an error's text holds a part.
func mentions(err error, part string) bool { return err != nil && strings.Contains(err.Error(), part) }
