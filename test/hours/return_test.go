package hours_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestBackSoonAfterALongOutage: gRPC would connect again only after up to two
// minutes, or by chance sooner: so there are several long outages. The lease is gone, so
// the settle time is part of what it takes.
func TestBackSoonAfterALongOutage(t *testing.T) {
	inTeam(t, 2, func(f *team) {
		for _, away := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 11 * time.Minute, 12 * time.Minute, 13 * time.Minute} {
			f.breakOff(away)
			began := time.Now()
			for back := 0; back < len(f.limiters); {
				pass(100 * time.Millisecond)
				synctest.Wait()
				back = 0
				for _, l := range f.limiters {
					if st := l.Status(); st.State == quota.StateActive && st.Instances == len(f.limiters) && st.ProofAge < 2*time.Second {
						back++
					}
				}
				if d := time.Since(began); d > 15*time.Second {
					t.Fatalf("away for %v: %d instances are back after %v", away, back, d)
				}
			}
		}
	})
}
