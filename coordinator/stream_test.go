package coordinator

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/await"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// TestANewcomerMissesNothing: its watch was opened before it registered. What others
// write just before that is in its listing, and what they write later reaches it by the
// watch; unless that began after the listing, as when a store was put back in between.
func TestANewcomerMissesNothing(t *testing.T) {
	for name, beyond := range map[string]bool{"opened before": false, "begun after the listing": true} {
		t.Run(name, func(t *testing.T) {
			f := setupOn(t, etcdtest.NewClient(t, server))
			f.set("p", "1000/s")
			registers := make(chan *membership, 1)
			f.kv = &crowded{KV: newKV(f.client), join: func() {
				p := <-registers // this goroutine's own: it registers
				f.set("p", "2000/s")
				if p.early.view == nil || p.early.loans == nil {
					t.Error("no watch was opened before")
					return
				}
				if beyond {
					p.early.view.close()
					p.early.view = p.newStream(p.ctx, 1<<40)
					p.early.view.open(p.s.keys.Provider("p"))
				}
			}}
			r, _ := f.subscribe(f.join(Options{}), "p")
			registers <- f.only(r)
			await.Until(t, "a proof", r.is(proved))
			for _, limit := range []string{"3000/s", "4000/s"} {
				f.set("p", limit)
				await.Until(t, limit, r.is(func(r *recorder) bool { return r.view.Policy.Limits[0].String() == limit }))
			}
		})
	}
}
