package window

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// The check on what is booked sees what a wrong count would let through.
func TestOverIssuedSeesWhatABoundDidNotAllow(t *testing.T) {
	for _, c := range []struct {
		name        string
		bound, used int64
		book, over  int64
	}{
		{"within", 10, 4, 6, 0},
		{"one too many", 10, 4, 7, 1},
		{"after the bound shrank", 3, 8, 2, 2},
		{"given back", 3, 8, -2, 0},
	} {
		plan := &plans.Plan{Windows: plans.Windows{Running: []quota.Window{{}}}}
		l := ledger{plan: plan, Account: Account{windows: &plan.Windows, epoch: 1, spans: []span{{Count: shape.Count{Bound: c.bound, Used: c.used}}}}}
		if c.book < 0 {
			l.refund(-c.book, queue.Grant{Epoch: 1})
		} else {
			l.charge(c.book, 0)
		}
		if l.overIssued != c.over || l.spans[0].Used != c.used+c.book {
			t.Errorf("%s: %d over, used %d", c.name, l.overIssued, l.spans[0].Used)
		}
	}
}
