package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// purse asks whether an instance may send what its purse makes it send: takes of a long limit of a
// key, and permits that it gives back. After each it may issue so many, and has issued.
func purse(r *rand.Rand) question {
	var (
		p         escrow.Purse
		line      line
		answers   []string
		events    int64
		out, used int64
	)
	event := func(answer string, numbers ...int64) {
		events++
		line.ints(numbers...)
		answers = append(answers, answer+fmt.Sprint(p.Taken))
	}
	for revision := range 2 + r.Int64N(10) {
		out = max(0, out+r.Int64N(12)-3) // others take and give back
		value, err := escrow.Encode(escrow.Total{Cluster: 1, Out: out})
		if err != nil {
			panic(err)
		}
		p.Read([]byte(value), 2*revision+1, 1)
		used += r.Int64N(p.Taken - used + 1)
		limit, back := r.Int64N(80), int64(0)
		if r.IntN(3) == 0 {
			back = r.Int64N(p.Taken - used + 1)
			p.Taken -= back
		}
		rule := escrow.Rule{Limit: limit, Instances: 1 + r.Int64N(4), Share: r.Int64N(12) - 1}
		next, n, ok := p.Next(rule, escrow.Use{Used: used, Need: r.Int64N(9)}, back, 1)
		switch {
		case !ok:
			event(fmt.Sprint("1,", out, ","), 1, out, 0, back)
			continue
		case n < 0:
			event(fmt.Sprint("1,", next.Out, ","), 1, out, -n, back)
		default:
			event(fmt.Sprint("1,", next.Out, ","), 0, limit, out, n)
		}
		if r.IntN(3) == 0 {
			continue // nobody knows
		}
		out = next.Out
		p.Committed(next, n, 2*revision+2, 1)
		event("", 2, max(0, n))
	}
	return question{fmt.Sprintf("purse %d%s", events, line.String()), strings.Join(answers, ",")}
}
