package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// purse asks whether an instance may send what its purse makes it send: takes of a long limit of a
// key, and permits that it gives back. It asks whether it may count on a refusal. After each it may
// issue so many, and has issued.
func purse(r *rand.Rand) question {
	var (
		p                 escrow.Purse
		verdict           = &escrow.Verdict{Cluster: 1}
		line              line
		answers           []string
		events            int64
		out, used, writes int64
	)
	event := func(answer string, numbers ...int64) {
		events++
		line.ints(numbers...)
		answers = append(answers, answer+fmt.Sprint(p.Taken))
	}
	others := func() { // take and give back
		writes++
		out = max(0, out+r.Int64N(12)-3)
	}
	value := func() []byte {
		value, err := escrow.Encode(escrow.Total{Cluster: 1, Out: out, Writes: writes})
		if err != nil {
			panic(err)
		}
		return []byte(value)
	}
	for revision := range 2 + r.Int64N(10) {
		others()
		p.Read(value(), 2*revision+1, verdict)
		used += r.Int64N(p.Taken - used + 1)
		limit, back := r.Int64N(80), int64(0)
		if r.IntN(3) == 0 {
			back = r.Int64N(p.Taken - used + 1)
			p.Taken -= back
		}
		rule := escrow.Rule{Limit: limit, Instances: 1 + r.Int64N(4), Share: r.Int64N(12) - 1}
		next, n, ok := p.Next(rule, escrow.Use{Used: used, Need: r.Int64N(9)}, escrow.Back{N: back}, verdict)
		switch {
		case !ok:
			event(fmt.Sprint("1,", out, ","), 1, out, 0, back)
			continue
		case n < 0:
			event(fmt.Sprint("1,", next.Out, ","), 1, out, -n, back)
		default:
			event(fmt.Sprint("1,", next.Out, ","), 0, limit, out, n)
		}
		switch r.IntN(4) {
		case 0:
			continue // nobody knows
		case 1: // refused: others have come, and before them perhaps a copy
			if n >= 0 {
				continue
			}
			seen, version := out, writes
			if r.IntN(3) == 0 {
				out, writes = next.Out, next.Writes
			} else {
				others()
			}
			if r.IntN(3) == 0 {
				others()
			}
			event(map[bool]string{false: "0,", true: "1,"}[p.Refused(next, value(), 2*revision+2, verdict)], 3, seen, version, -n, out, writes)
			continue
		}
		out, writes = next.Out, next.Writes
		p.Committed(next, n, 2*revision+2, verdict)
		event("", 2, max(0, n))
	}
	return question{fmt.Sprintf("purse %d%s", events, line.String()), strings.Join(answers, ",")}
}
