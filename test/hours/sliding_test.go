//go:build load

package hours_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

// Three busy instances, of which one ends and comes back, call a provider whose windows of 61 s begin with the
// first call of each, for four minutes, by a sliding limit, of the provider and of a key. Whenever its first
// window begins, none has more calls than the limit.
func TestAProvidersOwnWindows(t *testing.T) {
	const limit, window = 600, 61 * time.Second
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	limits, err := quota.ParseLimits("40/s,600/61s sliding")
	if err != nil {
		t.Fatal(err)
	}
	for _, byKey := range []bool{false, true} {
		t.Run(map[bool]string{false: "provider", true: "key"}[byKey], func(t *testing.T) {
			t.Parallel()
			name, policy := t.Name(), quota.Policy{Limits: limits}
			if byKey {
				policy = quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Keys: quota.Keys{Limits: limits}}
			}
			client, err := server.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			operator, err := admin.New(client, admin.Options{Author: "test"})
			if err == nil {
				_, err = operator.Put(t.Context(), name, policy)
			}
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var at []time.Time
			ends := time.Now().Add(4 * time.Minute)
			run := func(until time.Time) {
				session, err := coordinator.Join(t.Context(), client, coordinator.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				defer session.Close()
				l, err := consumer.Open(t.Context(), session, name, consumer.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				take := l.Take
				if byKey {
					take = l.Key("x").Take
				}
				for time.Now().Before(until) {
					if _, err := take(t.Context(), 1, 10*time.Second); err != nil {
						continue
					}
					mu.Lock()
					at = append(at, time.Now())
					mu.Unlock()
				}
			}
			var all sync.WaitGroup
			all.Go(func() { run(ends) })
			all.Go(func() { run(ends) })
			all.Go(func() {
				run(ends.Add(-150 * time.Second))
				run(ends)
			})
			all.Wait()
			slices.SortFunc(at, time.Time.Compare)
			most := 0
			for i, j := 0, 0; j < len(at); j++ {
				for at[j].Sub(at[i]) > window {
					i++
				}
				most = max(most, j-i+1)
			}
			var used []int
			for i := 0; i < len(at); {
				end, _ := slices.BinarySearchFunc(at, at[i].Add(window), time.Time.Compare)
				used, i = append(used, end-i), end
			}
			t.Logf("%d calls, at most %d of %d in 61 s; the provider counts %v in its own windows", len(at), most, limit, used)
			if most > limit {
				t.Error("over")
			}
		})
	}
}
