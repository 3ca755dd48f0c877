package bench

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

var quotadBefore = flag.String("quotad-before", "", "`program` of an earlier quotad for BenchmarkQuotad")

// BenchmarkQuotad compares quotad with an earlier one, and with an HTTP server without a limiter,
// the floor. All run at the same time and are driven in turns of a quarter of a second, so that
// what else the machine does slows each of them alike.
func BenchmarkQuotad(b *testing.B) {
	if *quotadBefore == "" {
		b.Skip("-quotad-before names no program")
	}
	floor, socket := startNothing(b)
	all := []*driven{{name: "floor: HTTP without a limiter", server: floor, socket: socket, open: dialQuotad, each: 1}}
	for _, q := range []struct{ name, program string }{{"before", *quotadBefore}, {"now", buildQuotad(b)}} {
		server, socket := startQuotad(b, q.program, startEtcd(b, quota.MaxPermits-1)) // alone, so it waits for nobody
		all = append(all, &driven{name: q.name, server: server, socket: socket, open: dialQuotad, each: 1},
			&driven{name: fmt.Sprintf("%s, batches of %d", q.name, batch), server: server, socket: socket, open: dialBatches, each: batch})
	}
	for _, connections := range []int{1, callers} {
		for _, d := range all {
			d.callers = repeat(connections, func() take { return d.open(b, d.socket) })
			d.cpu, d.took, d.latency = 0, 0, nil
		}
		for round := range whole(30, 1) {
			for i := range all {
				all[(i+round)%len(all)].turn(b)
			}
		}
		for _, d := range all {
			b.Run(fmt.Sprintf("quotad=%s/connections=%d", d.name, connections), func(b *testing.B) { d.report(b, all[0]) })
		}
	}
}

// driven is a server, and what its callers saw in their turns.
type driven struct {
	name    string
	server  *exec.Cmd
	socket  string
	open    func(b *testing.B, socket string) take
	each    int64 // permits of a call
	callers []take

	cpu, took time.Duration // of the server's processor, and of the clock
	latency   []time.Duration
}

// turn has all callers ask again and again.
func (d *driven) turn(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 250*time.Millisecond)
	defer cancel()
	used, began := processCPU(b, d.server.Process.Pid), time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, take := range d.callers {
		all.Go(func() {
			var own []time.Duration
			for ctx.Err() == nil {
				asked := time.Now()
				if ok, err := take(ctx); !ok || err != nil {
					b.Errorf("%s: no permit: %v", d.name, err)
					break
				}
				own = append(own, time.Since(asked))
			}
			mu.Lock()
			defer mu.Unlock()
			d.latency = append(d.latency, own...)
		})
	}
	all.Wait()
	d.took += time.Since(began)
	d.cpu += processCPU(b, d.server.Process.Pid) - used
}

// report reports what callers got, and what a call costs beside the floor.
func (d *driven) report(b *testing.B, floor *driven) {
	b.Helper()
	half := func(d *driven) float64 { return float64(slices.Sorted(slices.Values(d.latency))[len(d.latency)/2]) }
	cpu := func(d *driven) float64 { return float64(d.cpu) / float64(len(d.latency)) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(half(d), "p50-ns")
	b.ReportMetric(half(d)/half(floor), "p50-of-floor")
	b.ReportMetric(float64(int64(len(d.latency))*d.each)/d.took.Seconds(), "permits/s")
	b.ReportMetric(cpu(d), "server-cpu-ns/call")
	b.ReportMetric(cpu(d)/cpu(floor), "cpu-of-floor")
}
