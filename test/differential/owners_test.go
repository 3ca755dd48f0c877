package differential

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// owners asks for the shares of a key that has owners. Their order does not depend on the
// window: here it is by code of its own.
func owners(r *rand.Rand) question {
	w := quota.WindowAt(time.Second, int64(time.Hour)+r.Int64N(math.MaxInt64/4))
	key, most, total := fmt.Sprint("key", r.IntN(1000)), 1+r.Int64N(5), r.Int64N(2+r.Int64N(1000))
	p := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}}
	p.Keys.Limits, p.Keys.Owners = []quota.Limit{{Permits: total, Window: time.Second}}, most
	v := protocol.View{Revision: 10, Policy: &p, PolicyRevision: 3}
	if r.IntN(2) == 0 { // by override
		own := &protocol.Override{Limits: p.Keys.Limits, Owners: &most}
		p.Keys.Limits, p.Keys.Owners = []quota.Limit{{Permits: 7, Window: time.Second}}, r.Int64N(5)
		v.Overrides = map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: own}}}
	}
	p = p.WithDefaults()
	for i := range 1 + r.IntN(8) {
		v.Instances = append(v.Instances, protocol.Instance{ID: fmt.Sprintf("i%d.%x", i, r.Uint64())})
	}
	slices.SortFunc(v.Instances, func(a, b protocol.Instance) int { return strings.Compare(a.ID, b.ID) })
	_, shares, _ := share.OfKey(&v, key, w)
	var l line
	l.WriteString("owners")
	l.ints(total, most, int64(len(v.Instances)))
	var all []string
	for _, i := range v.Instances {
		rank := math.MaxUint64 - splitmix(fnv1a(i.ID)^splitmix(fnv1a(key)))
		l.ints(int64(rank>>32), int64(rank&math.MaxUint32))
		all = append(all, bound(shares[i.ID]))
	}
	return question{l.String(), strings.Join(all, ",")}
}
