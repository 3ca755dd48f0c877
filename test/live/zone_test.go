package live_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Where a policy gets a zone whose day has begun an hour earlier, or later, a fleet goes on, and what was handed out of the day
// before counts in it: when nothing comes any more, no more than the limit was issued in all.
func TestAnotherZoneKeepsTheCount(t *testing.T) {
	t.Parallel()
	for _, east := range []int{-1, 1} {
		t.Run(fmt.Sprint(east), func(t *testing.T) {
			t.Parallel()
			// It is between 3 and 4 in the morning, and between 2 and 3 or 4 and 5 in the other zone.
			offset := 3 - time.Now().UTC().Hour()
			if offset < -10 {
				offset += 24
			}
			p := exact(t, "40/200ms", 500*ms)
			in := func(permits int64, offset int) (of quota.Policy) {
				of = p
				of.Limits = append(of.Limits[:1:1], quota.Limit{Permits: permits, Window: 24 * time.Hour})
				of.Zone = fmt.Sprintf("Etc/GMT%+d", -offset) // whose sign is the other way round
				return of
			}
			g, all := loaded(t, in(5000, offset), 2, 40)
			g.awaitIssued(g.issued.total() + 100)
			g.set(in(5000, offset+east))
			g.seen(all)
			g.awaitIssued(g.issued.total() + 300)
			most := g.issued.total() + 500
			g.set(in(most, offset+east))
			g.await("no permit comes any more", func() bool {
				before := g.issued.total()
				g.pass(500 * ms)
				return g.issued.total() == before
			})
			if n := g.issued.total(); n > most {
				t.Errorf("%d permits of %d", n, most)
			}
		})
	}
}
