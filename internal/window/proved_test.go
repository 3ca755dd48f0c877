package window

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/extracted"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/quota"
)

// TestLoansAsInTheProof compares what a ledger has left, tells and counts with the proof's definitions
// (proof/Lending.v).
func TestLoansAsInTheProof(t *testing.T) {
	t.Parallel()
	extracted.Questions{Of: "loans", Ask: loanQuestion}.Test(t)
}

// loanQuestion asks what a ledger has left after each of a few events: a bound of the running window
// or of a later one, permits that are issued or lent, and a number that a host tells.
func loanQuestion(seed uint64) (ask, code string) {
	r := rand.New(rand.NewPCG(seed, 11))
	w, total := quota.Window{Length: time.Second}, r.Int64N(40)
	plan := &plans.Plan{Until: clock.Forever, Windows: plans.Windows{Lending: plans.Lending{Self: "me"}}}
	l := &ledger{}
	var question, answer []string
	events := 2 + r.IntN(14)
	for i := range events {
		kind, who, n, said := 0, r.IntN(3), int64(0), ""
		if i > 0 {
			kind, n = r.IntN(4), r.Int64N(l.budget()+1)
		}
		switch kind {
		case 0:
			w.Index += int64(r.IntN(4) / 3)
			own := r.Int64N(total + 1)
			plan.Running, plan.Over = []quota.Window{w}, w.Start()
			plan.Limits = []plans.Limit{{Window: w, Permits: own, Limit: total}}
			l.adopt(plan, w.Start())
			question = append(question, fmt.Sprintf("0 %d %d", w.Index, own))
		case 1:
			l.charge(n, l.now)
			question = append(question, fmt.Sprintf("1 %d", n))
		case 2:
			said = fmt.Sprintf("%d,", l.lend(fmt.Sprint(who), n).Permits[""])
			question = append(question, fmt.Sprintf("2 %d %d", who, n))
		default:
			told := r.Int64N(30)
			said = fmt.Sprintf("%d,", l.borrow(fmt.Sprint(who), protocol.Note{Windows: l.windows.Running, Permits: map[string]int64{"": told}}))
			question = append(question, fmt.Sprintf("3 %d %d", who, told))
		}
		answer = append(answer, said+fmt.Sprint(l.budget()))
	}
	return fmt.Sprintf("loans %d %d %s", total, events, strings.Join(question, " ")), strings.Join(answer, ",")
}
