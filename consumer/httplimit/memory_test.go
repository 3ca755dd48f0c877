package httplimit_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/quotient-limiter/quotient/consumer/httplimit"
)

// What a key costs, with three limits and an IPv4 address.
func BenchmarkKeyMemory(b *testing.B) {
	const n = httplimit.DefaultMaxKeys
	limits := limits(b, "500/2s,2000/10s,10000/1m")
	names := make([]string, 2*n)
	for i := range names {
		names[i] = fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
	}
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		keys := httplimit.NewKeyed(limits, n)
		for _, name := range names { // the second half pushes the first one out
			httplimit.Take(keys, name, 1, 1e18)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(keys)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/key")
}
