package consumer

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// nobody is a carrier that brings nothing.
type nobody struct{}

func (nobody) Tell(string, string, protocol.Loan) {}
func (nobody) Ask(string, []protocol.Request)     {}

// crowded returns a core that is active among n instances, of which five are new.
func crowded(n int, rule quota.ShareRule) *core {
	k := newCore("bench", clock.New(), Options{Logger: quiet})
	k.Carry(nobody{})
	p := quota.Policy{Limits: []quota.Limit{{Permits: 50, Window: time.Second}}, Share: rule, Outage: quota.OutageStop}.WithDefaults()
	v, demands := protocol.View{Revision: 1, Policy: &p, PolicyRevision: 1}, map[string]int64{}
	for i := range n {
		m := member(i)
		m.Weight = int64(1 + i*7919%quota.MaxWeight)
		if i > n-6 && i < n-1 {
			m.From = time.Now().Add(time.Hour)
		}
		demands[m.ID] = int64(1000 + 37*i)
		v.Instances = append(v.Instances, m)
	}
	if rule == quota.ShareDemand {
		entry := share.NewEntry(demands, 1, time.Now().Add(-time.Minute))
		v.Level = &protocol.Level{Entries: []protocol.LevelEntry{entry}, Until: time.Now().Add(time.Hour)}
	}
	now := k.clock.Now()
	since := clock.Instant{Mono: now.Mono - int64(10*time.Minute), Wall: now.Wall}
	k.Reset(since, since.Mono, v.Instances[n/2].ID, v)
	k.Prove(now)
	return k
}

// threadTime is the processor time of this thread on Linux, and 0 elsewhere.
func threadTime() time.Duration {
	const thisThread = 1
	var r syscall.Rusage
	if syscall.Getrusage(thisThread, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkLock is for how long a limiter's lock is held, after each change of its fleet,
// by: a change, a proof, a refusal, and a request that is larger than a share. "worst-ms" is
// the longest in processor time: a busy machine adds nothing. "nothing" reads the clock only.
func BenchmarkLock(b *testing.B) {
	ops := []struct {
		name string
		do   func(k *core, change func())
	}{
		{"nothing", func(k *core, _ func()) { k.clock.Now() }},
		{"change", func(_ *core, change func()) { change() }},
		{"proof", func(k *core, _ func()) { k.Prove(k.clock.Now()) }},
		{"refusal", func(k *core, _ func()) {
			k.gate.Enter(k.clock.Now(), nil, 2, 0)
			k.gate.Estimate(k.clock.Now(), 1)
		}},
		{"large", func(k *core, _ func()) {
			k.gate.Enter(k.clock.Now(), nil, 1<<20, math.MaxInt64)
			k.gate.Largest(k.clock.Now())
		}},
	}
	for _, op := range ops {
		for _, rule := range []quota.ShareRule{quota.ShareEqual, quota.ShareWeighted, quota.ShareDemand} {
			for _, n := range []int{100, 1000, 10_000} {
				b.Run(fmt.Sprintf("%s/share=%s/instances=%d", op.name, rule, n), func(b *testing.B) {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					k := crowded(n, rule)
					defer k.Close()
					revision, worst := int64(1), time.Duration(0)
					change := func() {
						revision++
						m := member(n + int(revision%3))
						m.Weight, m.From = revision%1000, time.Now().Add(-time.Minute)
						k.Apply(k.clock.Now(), protocol.Change{Revision: revision, Put: []quota.Instance{m}})
					}
					for b.Loop() {
						if op.name != "change" {
							b.StopTimer()
							k.Prove(k.clock.Now())
							change()
							b.StartTimer()
						}
						began := threadTime()
						op.do(k, change)
						worst = max(worst, threadTime()-began)
					}
					b.ReportMetric(float64(worst)/1e6, "worst-ms")
				})
			}
		}
	}
}
