package coordinator

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quotient-limiter/quotient/internal/await"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// TestANewcomerMissesNothing: its watch was opened before it registered. It is told each
// change that its listing lacks, also if the watch begins only after some of them, as
// when a store was put back in between.
func TestANewcomerMissesNothing(t *testing.T) {
	for name, beyond := range map[string]int64{"opened before": 0, "begun after the listing": 20} {
		t.Run(name, func(t *testing.T) {
			f := setupOn(t, etcdtest.NewClient(t, server))
			f.set("p", "1000/s")
			registers := make(chan *membership, 1)
			f.kv = &crowded{KV: newKV(f.client), join: func() {
				p := <-registers // this goroutine's own: it registers
				f.set("p", "2000/s")
				if p.early.view == nil || p.early.loans == nil {
					t.Error("no watch was opened before")
				} else if from := p.early.view.from; beyond > 0 {
					p.early.close()
					p.early.view = p.newStream(p.ctx, from+beyond)
					p.early.view.open(p.s.keys.Provider("p"))
				}
			}}
			r, _ := f.subscribe(f.join(Options{}), "p")
			registers <- f.only(r)
			await.Until(t, "a listing", r.is(func(r *recorder) bool { return len(r.log) > 0 }))
			var want []int64
			for i := range 3 * beyond {
				want = append(want, 3000+i)
				f.set("p", fmt.Sprintf("%d/s", 3000+i))
			}
			want = append(want, 9000)
			f.set("p", "9000/s")
			await.Until(t, "the last change", r.is(func(r *recorder) bool { return r.view.Policy.Limits[0].Permits == 9000 }))
			if r.mu.Lock(); !slices.Equal(r.totals, want) {
				t.Errorf("was told of %v, want %v", r.totals, want)
			}
			r.mu.Unlock()
		})
	}
}
