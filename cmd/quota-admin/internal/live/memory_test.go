package live

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The memory of a provider is what the dashboard's help says: so much for fifteen minutes, and
// so much an instance.
func TestMemoryOfFifteenMinutes(t *testing.T) {
	const providers, instances, perProvider, perInstance = 2, 50, 500 << 10, 3 << 10
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}}.WithDefaults()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := make([]*Provider, providers)
	for n := range all {
		p := newProvider("p")
		all[n] = p
		for i := range 1000 {
			now := start.Add(time.Duration(i)*time.Second + 300*time.Millisecond)
			f := &protocol.Fleet{Policy: protocol.Stored{Policy: policy, Revision: 7}}
			for k := range instances {
				r := &protocol.Report{Time: now, Used: int64(i * 10), UsedBefore: int64(i * 10), WindowStart: now.Truncate(time.Second), State: quota.StateActive}
				f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: fmt.Sprint(k), Name: fmt.Sprint("worker-", k)}, Report: r})
			}
			p.see(now, f, nil)
		}
		if len(p.Points) < PointsAtMost {
			t.Fatalf("%d points", len(p.Points))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / providers
	t.Logf("%d KB for a provider of %d instances", each>>10, instances)
	if most := int64(perProvider + instances*perInstance); each > most {
		t.Errorf("%d bytes for a provider of %d instances, want at most %d", each, instances, most)
	}
	runtime.KeepAlive(all)
}
