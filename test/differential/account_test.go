package differential

import (
	"math/rand/v2"
	"strings"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// account asks how many permits of a long limit an instance may have issued after each of a few
// events: it sends a holding, and learns that one was committed, that the last was not, or that none
// was.
func account(r *rand.Rand) question {
	var (
		a        escrow.Account
		l        line
		mays     []string
		pending  []int64
		hold     escrow.Holding
		own, now = int64(0), int64(1)
	)
	read := func() *escrow.Reading {
		return &escrow.Reading{Store: escrow.Store{Cluster: 1}, Revision: now, Total: escrow.Total{Cluster: 1}, TotalRevision: own, Own: hold, OwnRevision: own}
	}
	l.WriteString("escrow")
	events := 1 + r.IntN(10)
	l.ints(int64(events))
	for range events {
		now++
		switch some := len(pending) > 0; {
		case some && r.IntN(3) == 0: // one of them is committed, and a read or a refusal finds it
			hold.Taken, own = pending[r.IntN(len(pending))], now
			if r.IntN(2) == 0 {
				a.Read(read())
			} else {
				a.Refused(read())
			}
			pending = nil
			l.ints(1, hold.Taken, own)
		case some && r.IntN(4) == 0: // the last is, and its answer comes
			hold.Taken, own = pending[len(pending)-1], now
			a.Committed(now)
			pending = nil
			l.ints(1, hold.Taken, own)
		case some && r.IntN(4) == 0: // the last is refused
			a.Refused(read())
			pending = pending[:len(pending)-1]
			l.ints(3)
		case r.IntN(4) == 0:
			a.Read(read())
			l.ints(2)
		default:
			n := r.Int64N(20)
			a.Sent(n)
			pending = append(pending, n)
			l.ints(0, n)
		}
		mays = append(mays, bound(a.May()))
	}
	return question{l.String(), strings.Join(mays, ",")}
}
