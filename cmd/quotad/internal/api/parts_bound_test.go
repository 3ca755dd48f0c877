package api

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// Processes that come and go leave nothing behind: neither under a limit that allows nothing,
// nor in a window that lasts for days.
func TestPartsForgetProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []quota.Limit{{Permits: 0, Window: time.Second}, {Permits: 1e6, Window: 24 * time.Hour}} {
			s := serverOf(t, consumer.Fixed(quota.Policy{Limits: []quota.Limit{limit}}), roomy)
			for n := range 100 {
				p := newProcess(t, s, fmt.Sprint("short-lived ", n))
				p.post("/v1/acquire", `{"provider":"p"}`)
				p.post("/v1/acquire", `{"provider":"p","max_wait":1}`)
				_ = p.c.Close()
			}
			if n := len(s.provider("p").parts.got); n > 0 {
				t.Errorf("limit %v: %d processes are remembered", limit, n)
			}
		}
	})
}

// BenchmarkParts has every active process call twice in a window.
func BenchmarkParts(b *testing.B) {
	const processes = 2048
	o := newProvider()
	for n := range processes {
		o.seen(fair.Client{User: "user", Process: fmt.Sprint(n)})
	}
	for b.Loop() {
		o.parts.free, o.parts.all = time.Now().Add(time.Hour), 1e6
		clear(o.parts.got)
		o.parts.use = nil
		for n := range processes {
			p := &part{provider: o, client: fair.Client{User: "user", Process: fmt.Sprint(n)}}
			o.parts.got[p.client] = 1
			p.early(1)
		}
	}
}
