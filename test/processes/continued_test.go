//go:build e2e && linux

package processes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// daemonRole is that of a process that is killed and started again in place.
const daemonRole = "daemon"

// daemon is a process with one instance, which notes each permit in a file.
type daemon struct {
	Endpoints []string
	Name      string
	Folder    string // of state and permits
	Life      int    // numbers the processes of this name
}

func (d daemon) permits() string { return filepath.Join(d.Folder, "permits") }

func (d daemon) work(orders <-chan struct{}, _ func(struct{})) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := dial(d.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	// A lease that a busy machine does not lose.
	s, err := coordinator.Join(ctx, client, coordinator.Options{Name: d.Name, StateDir: d.Folder, TTL: time.Minute, Lazy: true, Logger: quiet})
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := consumer.Open(ctx, s, provider, consumer.Options{Logger: quiet})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(d.permits(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	go func() {
		<-orders
		cancel()
	}()
	for ctx.Err() == nil {
		if p, err := l.Take(ctx, 1, time.Second); err == nil {
			if _, err := fmt.Fprintln(file, d.Life, p.Start().UnixNano()); err != nil {
				return err
			}
		}
	}
	return nil
}

// taken returns the permits that the processes of a daemon have noted, by the start of
// their window, and those of one of its processes alone.
func (d daemon) taken(t *testing.T, life int) (all, own counts) {
	t.Helper()
	text, err := os.ReadFile(d.permits())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	all, own = counts{}, counts{}
	for line := range strings.Lines(string(text)) {
		var by int
		var start int64
		if _, err := fmt.Sscan(line, &by, &start); err != nil || !strings.HasSuffix(line, "\n") {
			continue // it is being written
		}
		if all[start]++; by == life {
			own[start]++
		}
	}
	return all, own
}

// TestAKilledProcessContinuesAsTheSameInstance kills a process again and again. Each
// time the next one in its place must issue permits, of windows in which the one
// before issued none, as the same instance; and the sum of two instances never exceeds
// the limit.
func TestAKilledProcessContinuesAsTheSameInstance(t *testing.T) {
	const limit, lives = 40, 6
	cluster, client := etcdtest.New(t, embedded.Options{})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: window}}}
	if _, err := admin.Put(t.Context(), provider, policy); err != nil {
		t.Fatal(err)
	}
	start := func(d daemon) *child.Process {
		t.Helper()
		p, err := child.Start(daemonRole, d, func(struct{}) {}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	ids := func() map[string]string {
		t.Helper()
		all := map[string]string{}
		found, err := feed.Inside(admin).Fleet(t.Context(), provider)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range found.Instances {
			if all[i.Instance.Name] != "" {
				t.Errorf("%s is there twice: %s and %s", i.Instance.Name, all[i.Instance.Name], i.Instance.ID)
			}
			all[i.Instance.Name] = i.Instance.ID
		}
		return all
	}
	stays := daemon{Endpoints: cluster.Endpoints(), Name: "stays", Folder: t.TempDir()}
	dies := daemon{Endpoints: cluster.Endpoints(), Name: "dies", Folder: t.TempDir()}
	other, p := start(stays), start(dies)
	var first map[string]string
	for life := range lives {
		await.Until(t, fmt.Sprintf("permits of process %d", life), func() bool {
			_, own := dies.taken(t, life)
			return len(own) >= 3 // in windows
		})
		if now := ids(); first == nil {
			first = now
		} else if now[dies.Name] != first[dies.Name] || now[stays.Name] != first[stays.Name] {
			t.Errorf("process %d: etcd has %v, had %v", life, now, first)
		}
		if life == lives-1 {
			break
		}
		p.Kill()
		before, _ := dies.taken(t, life)
		dies.Life++
		began := time.Now()
		p = start(dies)
		await.Until(t, "a permit of the next process", func() bool { _, own := dies.taken(t, dies.Life); return len(own) > 0 })
		t.Logf("process %d issued a permit %v after it was started", dies.Life, time.Since(began).Round(time.Millisecond))
		_, own := dies.taken(t, dies.Life)
		for w := range own {
			if before[w] > 0 {
				t.Errorf("process %d issued %d permits in a window in which process %d issued %d", dies.Life, own[w], life, before[w])
			}
		}
	}
	for _, p := range []*child.Process{p, other} {
		if err := p.Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
	all, _ := dies.taken(t, 0)
	sum, most := counts{}, int64(0)
	others, _ := stays.taken(t, 0)
	for _, c := range []counts{all, others} {
		for w, n := range c {
			sum[w] += n
			most = max(most, sum[w])
		}
	}
	if most > limit {
		t.Errorf("%d permits in one window, the limit is %d", most, limit)
	}
	t.Logf("%d windows, at most %d permits of %d in one; %d processes as one instance", len(sum), most, limit, lives)
}
