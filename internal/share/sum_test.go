package share_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// FuzzSharesSumToTheTotal: in every view that keys can make, by any bytes under any
// of them, the shares of all sum to the total, exactly. The history of each instance says
// the same as the view.
func FuzzSharesSumToTheTotal(f *testing.F) {
	f.Add([]byte(`x`), int64(1000), uint8(8))
	f.Add([]byte(`{"schema":1,"from":"2027-01-01T00:00:00Z"}`), int64(1000), uint8(19))
	f.Fuzz(func(t *testing.T, instance []byte, total int64, n uint8) {
		policy := &quota.Policy{Limits: []quota.Limit{{Permits: max(0, total) % quota.MaxPermits, Window: time.Second}}}
		v, w := protocol.View{Policy: policy}, second(500)
		parts := 0
		for i := range n%20 + 1 {
			x := protocol.Instance{ID: fmt.Sprintf("i%d", i)}
			if y, err := protocol.ReadInstance(x.ID, instance); err == nil && i%2 == 0 {
				x = y
			}
			if v.Instances = append(v.Instances, x); protocol.TakesPart(&x, w.Start()) {
				parts++
			}
		}
		want, shares, _ := share.Of(&v, w)
		if parts == 0 {
			want = 0
		}
		sum := int64(0)
		for _, i := range v.Instances {
			var h share.History
			h.Reset(0, i.ID, v)
			own := h.Bound(w, w.Start(), 0, share.NotFrozen).Permits
			if sum += own; own != shares[i.ID] {
				t.Fatalf("%s: its history says %d, the view %d", i.ID, own, shares[i.ID])
			}
		}
		if sum != want {
			t.Fatalf("shares sum to %d of %d: %v", sum, want, shares)
		}
	})
}
