//go:build e2e && linux

package faults

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// samples are taken of each latency, each of a provider of its own and all
// within a second: so many changes at once are more than a fleet has to bear.
// E2E_SAMPLES says otherwise: all instances of all of them are in this process.
var samples = 20

// stagger returns the time between two samples: together they meet a window of a
// second at every part of it.
func stagger() time.Duration { return window / time.Duration(samples) }

// party is so many instances, each with a session and a client of its own, of
// every provider.
type party struct {
	t         *testing.T
	endpoints []string
	admin     *coordinator.Admin
	members   []*guest
}

// guest is a process, as far as etcd can tell.
type guest struct {
	client   *clientv3.Client
	session  *coordinator.Session
	limiters map[int]*consumer.Limiter // by provider
}

var quiet = slog.New(slog.DiscardHandler)

func providerName(i int) string { return fmt.Sprintf("latency/%d", i) }

// invite makes a guest that is an instance of no provider yet.
func (p *party) invite() *guest {
	p.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: p.endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := join(p.t.Context(), client, coordinator.Options{Logger: quiet})
	if err != nil {
		p.t.Fatal(err)
	}
	return &guest{client, s, map[int]*consumer.Limiter{}}
}

// open makes the guest an instance of provider i.
func (p *party) open(g *guest, i int) {
	l, err := consumer.Open(p.t.Context(), g.session, providerName(i), consumer.Options{Logger: quiet})
	if err != nil {
		p.t.Error(err)
		return
	}
	g.limiters[i] = l
}

// gone ends a guest without notice: in order, or by a crash, after which its
// lease runs out.
func (g *guest) gone(crash bool) {
	if crash {
		_ = g.client.Close()
	}
	_ = g.session.Close()
	_ = g.client.Close()
}

// each does something to every provider, one after the other, and measures how
// long it takes until what is wanted of it is there.
func (p *party) each(what string, act func(i int), wanted func(i int) bool) []time.Duration {
	p.t.Helper()
	took := make([]time.Duration, samples)
	var all sync.WaitGroup
	for i := range samples {
		all.Go(func() {
			wait(time.Duration(i) * stagger())
			began := time.Now()
			act(i)
			for tick := time.NewTicker(2 * time.Millisecond); time.Since(began) < time.Minute; <-tick.C {
				if wanted(i) {
					took[i] = time.Since(began)
					return
				}
			}
			p.t.Errorf("%s: nothing after a minute; the share is %d", what, p.share(i))
		})
	}
	all.Wait()
	return took
}

// share is what the first instance has of provider i.
func (p *party) share(i int) int64 { return p.members[0].limiters[i].Status().Share }

// shared tells whether that is a total's part for each of n.
func (p *party) shared(total int64, n int) func(i int) bool {
	return func(i int) bool { s := p.share(i); return s == total/int64(n) || s == total/int64(n)+1 }
}

// set puts a total in force.
func (p *party) set(i int, total int64) {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: window}}, Outage: quota.OutageStop}
	if _, err := p.admin.Put(p.t.Context(), providerName(i), policy, coordinator.AnyRevision); err != nil {
		p.t.Error(err)
	}
}

// TestLatencies measures how soon changes take effect, for fleets of the sizes
// in E2E_SIZES, and prints a table. It asserts no times.
func TestLatencies(t *testing.T) {
	sizes := os.Getenv("E2E_SIZES")
	if sizes == "" {
		sizes = "10"
	}
	if text := os.Getenv("E2E_SAMPLES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("E2E_SAMPLES: %q is no number of samples", text)
		}
		samples = n
	}
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			t.Fatalf("E2E_SIZES: %q is no size of a fleet", text)
		}
		t.Run(text, func(t *testing.T) { latencies(t, n) })
	}
}

func latencies(t *testing.T, n int) {
	cluster, client := etcdtest.New(t, etcdtest.Options{Slow: true})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &party{t: t, endpoints: cluster.Endpoints(), admin: admin}
	const total = 1_000_000
	for i := range samples {
		p.set(i, total)
	}
	for range n {
		g := p.invite()
		defer g.gone(false)
		for i := range samples {
			p.open(g, i)
		}
		p.members = append(p.members, g)
	}
	nothing := func(int) {}
	p.each("all have joined", nothing, p.shared(total, n))
	show := func(what string, took []time.Duration) {
		slices.Sort(took)
		t.Logf("| %d | %s | %.2f s | %.2f s |", n, what, took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
	}
	guests := make([]*guest, samples)
	joined := func(what string) []time.Duration {
		for i := range guests {
			guests[i] = p.invite()
		}
		took := p.each(what, func(i int) { p.open(guests[i], i) }, func(i int) bool { return guests[i].limiters[i].TryAcquire() })
		p.each(what, nothing, p.shared(total, n+1))
		return took
	}
	show("join to first permit", joined("join"))
	show("plain leave to regained share", p.each("leave", func(i int) { guests[i].gone(false) }, p.shared(total, n)))
	joined("join again")
	show("crash to regained share", p.each("crash", func(i int) { guests[i].gone(true) }, p.shared(total, n)))
	show("limit cut to last permit under the old limit", p.each("cut", func(i int) { p.set(i, total/2) }, p.shared(total/2, n)))
	show("limit raise to first use", p.each("raise", func(i int) { p.set(i, total) }, p.shared(total, n)))
}
