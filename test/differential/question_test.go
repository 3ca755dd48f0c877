package differential

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// question is one for the model, as proof/answers.ml reads it, and what the code answers.
type question struct{ ask, code string }

// kinds make questions, each about other functions.
var kinds = []func(*rand.Rand) question{history, history, keyHistory, ownedHistory, timing, judged, purse, mark, owners}

// questionOf returns the question of a seed.
func questionOf(seed uint64) question {
	return kinds[seed%uint64(len(kinds))](rand.New(rand.NewPCG(seed, 37)))
}

// values is how many numbers an answer has.
func values(answer string) int {
	return len(strings.FieldsFunc(answer, func(r rune) bool { return r == ' ' || r == ',' }))
}

// line writes a question.
type line struct{ strings.Builder }

func (l *line) ints(all ...int64) {
	for _, n := range all {
		fmt.Fprintf(l, " %d", n)
	}
}

func (l *line) bools(all ...bool) {
	for _, b := range all {
		n := int64(0)
		if b {
			n = 1
		}
		l.ints(n)
	}
}

// timing asks for the least settle time, and whether a policy obeys the timing rule.
func timing(r *rand.Rand) question {
	upTo := func(most time.Duration) time.Duration {
		switch r.IntN(8) {
		case 0:
			return 0
		case 1:
			return most
		}
		return time.Duration(r.Int64N(1 + r.Int64N(int64(most)) + 1))
	}
	p := quota.Policy{Timing: quota.Timing{Freshness: 100*time.Millisecond + upTo(quota.MaxSettle/2), ClockError: max(1, upTo(quota.MaxSettle/100))}}
	p.Limits = []quota.Limit{{Permits: 1, Window: time.Duration(1+r.IntN(600)) * 100 * time.Millisecond}}
	if r.IntN(3) == 0 {
		p.Shape = quota.ShapeSliding
	}
	least := quota.MinSettleFor(p.Freshness, p.ClockError, p.DriftWindow())
	p.Settle = least + time.Duration(r.IntN(3)-1)*time.Millisecond
	var l line
	l.WriteString("timing")
	l.ints(protocol.DriftBound, int64(time.Millisecond), int64(p.Settle), int64(p.Freshness), int64(p.ClockError), int64(p.DriftWindow()))
	return question{l.String(), fmt.Sprint(int64(least), quiet(&p))}
}

// quiet reports, as 0 or 1, whether a policy has nothing that is not supported.
func quiet(p *quota.Policy) int {
	if len(p.Unsupported()) > 0 {
		return 0
	}
	return 1
}

// bound writes a bound, as the model does.
func bound(permits int64) string {
	if permits == 1<<63-1 {
		return "free"
	}
	return strconv.FormatInt(permits, 10)
}
