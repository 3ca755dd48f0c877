//go:build e2e

package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

// count is the provider's own: of each second, by the window of each permit.
type count struct {
	mu sync.Mutex
	by map[int64]int64
}

func (c *count) add(p consumer.Permit) {
	c.mu.Lock()
	c.by[p.Start().Unix()] += p.N()
	c.mu.Unlock()
}

// play opens an instance and calls until ctx ends, at a rate that moves.
func (c *count) play(ctx context.Context, t *testing.T, client *clientv3.Client, name string, perSecond float64) {
	quiet := slog.New(slog.DiscardHandler)
	s, err := coordinator.Join(t.Context(), client, coordinator.Options{Name: name, Logger: quiet})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	l, err := consumer.Open(t.Context(), s, "demo/api", consumer.Options{Logger: quiet})
	if err != nil {
		t.Error(err)
		return
	}
	owed, part, moves := 0.0, 1.0, time.Now()
	for last := time.Now(); ctx.Err() == nil; <-time.After(rand.N(20 * time.Millisecond)) {
		now := time.Now()
		if now.After(moves) {
			part, moves = rand.Float64()*2, now.Add(rand.N(4*time.Second))
		}
		owed += perSecond * part * now.Sub(last).Seconds()
		for last = now; owed >= 1; owed-- {
			if p := l.TryTake(1); p.N() > 0 {
				c.add(p)
			}
		}
	}
}

// The tutorial's fleet, on a real etcd, with joins, leaves and load that moves: no point of the
// chart is above the limit, and no window of the provider's own count is. Somebody looks from
// the tenth second on, for as long as PLAYED says.
func TestAPlayedFleetIsDrawnWithinItsLimit(t *testing.T) {
	played, err := time.ParseDuration(cmp.Or(os.Getenv("PLAYED"), "40s"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := embedded.Start(embedded.Options{Slow: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	operator, err := admin.New(client, admin.Options{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 1000
	policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Second}}, Reason: "as quota-admin dev"}
	if _, err := operator.PutIf(t.Context(), "demo/api", policy, 0); err != nil {
		t.Fatal(err)
	}
	counted := &count{by: map[int64]int64{}}
	var fleet sync.WaitGroup
	begin := func(name string) (end func()) {
		ctx, end := context.WithCancel(t.Context())
		fleet.Go(func() { counted.play(ctx, t, client, name, 1.2*limit/3) })
		return end
	}
	for i := range 3 {
		end := begin(fmt.Sprint("demo-", i+1))
		defer end()
	}
	<-time.After(10 * time.Second) // nobody looks
	w := NewWatcher(operator, 32)
	defer w.Close()
	var others []func()
	began := time.Now()
	for i := 0; time.Since(began) < played; i++ {
		if i%15 == 5 {
			others = append(others, begin(fmt.Sprint("more-", i)))
		}
		if i%15 == 14 && len(others) > 1 {
			others[0]()
			others = others[1:]
		}
		if err := w.Read(t.Context(), []string{"demo/api"}, 1); err != nil {
			t.Log(err) // a busy machine's etcd
		}
		<-time.After(time.Second)
	}
	for _, end := range others {
		end()
	}
	p, over, known, off, drawn, truth := w.Seen("demo/api"), 0, 0, 0, 0.0, int64(0)
	counted.mu.Lock()
	defer counted.mu.Unlock()
	for _, point := range p.Points {
		if point.Total == nil || point.Limit == nil {
			continue
		}
		n := counted.by[point.At/1000]
		known++
		drawn, truth = drawn+*point.Total, truth+n
		if *point.Total > *point.Limit+0.1 {
			over++
			t.Errorf("%v: %v drawn of %v; the provider counted %d", time.UnixMilli(point.At).UTC(), *point.Total, *point.Limit, n)
		}
		if d := *point.Total - float64(n); d > 0.5 || d < -0.5 {
			off++
		}
	}
	for at, n := range counted.by {
		if n > limit {
			t.Errorf("%v: the provider counted %d", time.Unix(at, 0).UTC(), n)
		}
	}
	t.Logf("%d points, %d above the limit, %d other than the provider's count; %.0f drawn of %d", known, over, off, drawn, truth)
	if known < int(played.Seconds())*8/10-10 {
		t.Errorf("%d points have a total", known)
	}
}
