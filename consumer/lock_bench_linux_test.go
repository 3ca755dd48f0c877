package consumer

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// nobody is a carrier that brings nothing.
type nobody struct{}

func (nobody) Tell(string, string, protocol.Note) {}
func (nobody) Ask(string, []protocol.Request)     {}

// crowded returns a core that is active among n instances, of which five are new. Each
// instance has a permit in every second window on average.
func crowded(n int) *core {
	k := newCore("bench", clock.New(), Options{Logger: quiet})
	k.Carry(nobody{})
	p := quota.Policy{Limits: []quota.Limit{{Permits: int64(n / 2), Window: time.Second}}, Outage: quota.OutageStop}.WithDefaults()
	v := protocol.View{Revision: 1, Policy: &p, PolicyRevision: 1}
	for i := range n {
		m := member(i)
		if i > n-6 && i < n-1 {
			m.From = time.Now().Add(time.Hour)
		}
		v.Instances = append(v.Instances, m)
	}
	now := k.clock.Now()
	since := clock.Instant{Mono: now.Mono - int64(10*time.Minute), Wall: now.Wall}
	k.Reset(since, v.Instances[n/2+1].ID, v)
	k.Prove(now)
	return k
}

// threadTime is the processor time of this thread. getrusage is too coarse: it moves on by
// milliseconds.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// BenchmarkLock is for how long a limiter's lock is held, after a change of its fleet, by: a
// change, a proof, a refusal, and a request that is larger than a share. All windows are new
// to each of them: their instances have to be counted, which takes longest. "us" is the mean
// and "worst-us" the longest, in processor time. "nothing" reads the clock only.
func BenchmarkLock(b *testing.B) {
	ops := []struct {
		name string
		do   func(k *core, at clock.Instant, change func(clock.Instant))
	}{
		{"nothing", func(*core, clock.Instant, func(clock.Instant)) {}},
		{"change", func(_ *core, at clock.Instant, change func(clock.Instant)) { change(at) }},
		{"proof", func(k *core, at clock.Instant, _ func(clock.Instant)) { k.mu.planner.Prove(at); k.gate.Proved(at) }},
		{"refusal", func(k *core, at clock.Instant, _ func(clock.Instant)) {
			k.gate.Enter(at, nil, 2, 0, queue.Default)
			k.gate.Estimate(at, 1, queue.Default)
		}},
		{"large", func(k *core, at clock.Instant, _ func(clock.Instant)) {
			k.gate.Enter(at, nil, 1<<20, math.MaxInt64, queue.Default)
			k.gate.Usage(at)
		}},
	}
	for _, op := range ops {
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/instances=%d", op.name, n), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				k := crowded(n)
				defer k.Close()
				at, revision, sum, worst := k.clock.Now(), int64(1), time.Duration(0), time.Duration(0)
				pass := func(d time.Duration) {
					at.Mono, at.Wall = at.Mono+int64(d), at.Wall+int64(d)
				}
				change := func(at clock.Instant) {
					revision++
					m := member(n + int(revision%3))
					m.From = time.Now().Add(-time.Minute)
					k.mu.planner.Apply(at, protocol.Change{Revision: revision, Put: []protocol.Instance{m}})
					k.gate.Changed(at)
				}
				for b.Loop() {
					k.mu.planner.Prove(at)
					change(at)
					pass(quota.DefaultSettle + 10*time.Second)
					k.mu.planner.Prove(at)
					began := threadTime()
					op.do(k, at, change)
					took := threadTime() - began
					sum, worst = sum+took, max(worst, took)
				}
				k.mu.planner.Prove(at)
				if s := k.mu.planner.State(at); s != quota.StateActive {
					b.Fatalf("%s: there was no work", s)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(sum)/float64(b.N)/1e3, "us")
				b.ReportMetric(float64(worst)/1e3, "worst-us")
			})
		}
	}
}
