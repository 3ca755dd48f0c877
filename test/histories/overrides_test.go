package histories

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// overrideKeys sets other limits for single keys, or deletes them: up to two at once.
func (w *world) overrideKeys(f *fleet, seed uint64) {
	w.operate(func(ctx context.Context) {
		_, _ = feed.Inside(w.admin).SetOverrides(ctx, f.provider, "", func(old protocol.KeyOverrides) (map[string]*protocol.Override, error) {
			r, changes := rand.New(rand.NewPCG(w.seed, seed)), map[string]*protocol.Override{}
			for _, i := range r.Perm(len(keyNames))[:1+r.IntN(2)] {
				name, next := keyNames[i], &protocol.Override{}
				switch was := old.Keys[name]; {
				case was != nil && r.IntN(4) == 0: // deleted
					next = nil
				case was != nil && r.IntN(3) > 0: // raised or lowered
					for _, l := range was.Limits {
						next.Limits = append(next.Limits, quota.Limit{Permits: w.ofKey(r, l.Window), Window: l.Window})
					}
					next.Owners = was.Owners
				default:
					for _, k := range r.Perm(len(keyLengths))[:1+r.IntN(2)] {
						next.Limits = append(next.Limits, quota.Limit{Permits: totals[r.IntN(len(totals))], Window: keyLengths[k]})
					}
					for _, l := range w.withBudget(nil) {
						longer := time.Duration(1 + seed%3) // without chance, so that all else happens as with one length
						next.Limits = append(next.Limits, quota.Limit{Permits: w.ofKey(r, l.Window), Window: longer * l.Window})
					}
				}
				if next != nil && r.IntN(3) == 0 { // with owners of its own, or again those of the policy
					if next.Owners = nil; r.IntN(4) > 0 {
						n := r.Int64N(4)
						next.Owners = &n
					}
				}
				changes[name] = next
			}
			return changes, nil
		})
	})
}
