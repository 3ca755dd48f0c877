package histories

import (
	"context"
	"math/rand/v2"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// overrideKeys sets other limits for single keys, or deletes them: up to two at once.
func (w *world) overrideKeys(f *fleet, seed uint64) {
	w.operate(func(ctx context.Context) {
		_, _ = feed.Inside(w.admin).SetOverrides(ctx, f.provider, "", func(old protocol.KeyOverrides) (map[string][]quota.Limit, error) {
			r, changes := rand.New(rand.NewPCG(w.seed, seed)), map[string][]quota.Limit{}
			for _, i := range r.Perm(len(keyNames))[:1+r.IntN(2)] {
				name, limits := keyNames[i], []quota.Limit(nil)
				switch was := old.Limits[name]; {
				case len(was) > 0 && r.IntN(4) == 0: // deleted
				case len(was) > 0 && r.IntN(3) > 0: // raised or lowered
					for _, l := range was {
						limits = append(limits, quota.Limit{Permits: totals[r.IntN(len(totals))], Window: l.Window})
					}
				default:
					for _, k := range r.Perm(len(keyLengths))[:1+r.IntN(2)] {
						limits = append(limits, quota.Limit{Permits: totals[r.IntN(len(totals))], Window: keyLengths[k]})
					}
				}
				changes[name] = limits
			}
			return changes, nil
		})
	})
}
