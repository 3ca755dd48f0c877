package live_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// One instance hears from the provider that others have used most of a day's limit. Through etcd all stop
// when what is left is used up, but for what they had in hand: a second's share of each.
func TestTheFleetHeedsAStatedRest(t *testing.T) {
	t.Parallel()
	p := exact(t, "40/200ms", 500*ms)
	const limit, left, hand = 50_000, 300, 2 * 100
	p.Limits = append(p.Limits, quota.Limit{Permits: limit, Window: 24 * time.Hour})
	if time.Now().UTC().Hour() == 23 {
		p.Zone = "Etc/GMT+9"
	}
	g := newGroup(t, etcdtest.NewClient(t, server), p)
	all := g.join(2)
	g.ready(all...)
	g.awaitFull(40)
	was := g.issued.total()
	all[0].limiter.Stated(limit, left, time.Now().Add(30*time.Minute))
	for _, m := range all {
		g.await("each instance says what the provider said", func() bool {
			_, err := m.limiter.Take(t.Context(), 1, 0)
			return err != nil && strings.Contains(err.Error(), "the provider says that nothing more of 50000/d is left")
		})
	}
	g.await("no permit comes any more", func() bool {
		before := g.issued.total()
		g.pass(500 * ms)
		return g.issued.total() == before
	})
	if n := g.issued.total() - was; n < left || n > left+2*hand {
		t.Errorf("%d permits after the provider said that %d are left", n, left)
	}
}
