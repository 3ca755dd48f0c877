package consumer

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// member is an instance as its key says: its strings are its own.
func member(i int) protocol.Instance {
	return protocol.Instance{
		ID: fmt.Sprintf("worker-%d.payments.694d9a1b2c3d4e5f.%d", i, i), Name: fmt.Sprintf("worker-%d.payments", i),
		Host: fmt.Sprintf("host-%d.example.com", i), Started: time.Unix(1_700_000_000, 0),
	}
}

// limiterOf returns a limiter's core that is one of n instances and holds a proof.
func limiterOf(n int) *core {
	k := newCore("bench", clock.New(), Options{Logger: quiet})
	p := quota.Policy{Limits: []quota.Limit{{Permits: 300_000, Window: time.Second}}}.WithDefaults()
	v := protocol.View{Revision: 1, Policy: &p, PolicyRevision: 1}
	for i := range n {
		v.Instances = append(v.Instances, member(i))
	}
	k.Reset(k.clock.Now(), v.Instances[0].ID, v)
	k.Prove(k.clock.Now())
	return k
}

// BenchmarkViewChange is what one limiter pays when another instance of its fleet
// joins or leaves.
func BenchmarkViewChange(b *testing.B) {
	for _, n := range []int{100, 2000, 10_000} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			k := limiterOf(n)
			defer k.Close()
			other := member(n)
			b.ReportAllocs()
			for i := int64(2); b.Loop(); i++ {
				c := protocol.Change{Revision: i}
				if i%2 == 0 {
					c.Put = []protocol.Instance{other}
				} else {
					c.Deleted = []string{other.ID}
				}
				k.Apply(k.clock.Now(), c)
			}
		})
	}
}

// BenchmarkFleetMemory tells what a limiter holds of its fleet: "bytes" each, the
// instances' own strings included.
func BenchmarkFleetMemory(b *testing.B) {
	for _, n := range []int{100, 2000, 10_000} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			held := make([]*core, 0, 1<<10)
			before := heap()
			for b.Loop() {
				if len(held) < cap(held) {
					held = append(held, limiterOf(n))
				}
			}
			b.ReportMetric(float64(heap()-before)/float64(len(held)), "bytes/limiter")
			runtime.KeepAlive(held)
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
