package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// taker is a process that takes permits of a long limit, and a store of which it knows.
type taker struct {
	*rand.Rand
	escrow.Account

	line    line
	events  int64
	answers []string

	now, own, hold, out int64 // of the store: its revision, the holding's, and both values
	used                int64
	pending             []int64
}

// ledger asks what a process sends that takes permits and gives some back, and what it may have
// issued. At the end the store is restored, three times in four.
func ledger(r *rand.Rand) question {
	t := &taker{Rand: r, now: 1}
	for range 1 + r.IntN(8) {
		t.take()
	}
	switch r.IntN(4) {
	case 0, 1:
		t.restored()
	case 2:
		t.sameID()
	}
	return question{fmt.Sprintf("ledger %d%s", t.events, t.line.String()), strings.Join(t.answers, ",")}
}

// event notes one, and what the code says of it.
func (t *taker) event(answer string, numbers ...int64) {
	t.events++
	t.line.ints(numbers...)
	t.answers = append(t.answers, answer+bound(t.May()))
}

// take reads and sends, as coordinator does.
func (t *taker) take() {
	t.now++
	t.out += t.Int64N(5) // others take
	f := escrow.Reading{Store: escrow.Store{Cluster: 1}, Revision: t.now, Total: escrow.Total{Cluster: 1, Out: t.out}, TotalRevision: t.now,
		Own: escrow.Holding{Taken: t.hold}, OwnRevision: t.own}
	t.Read(&f)
	t.event("", 2)
	t.used += t.Int64N(t.May() - t.used + 1)
	limit := t.Int64N(80)
	rule := escrow.Rule{Limit: limit, Instances: 1 + t.Int64N(4), Share: t.Int64N(12) - 1}
	step, ok := t.Next(rule, &f, escrow.Use{Used: t.used, Need: t.Int64N(9), Idle: t.IntN(4) == 0, Ends: t.IntN(8) == 0}, "i")
	if !ok {
		return
	}
	n := step.Own.Taken
	t.Sent(n)
	t.pending = append(t.pending, n)
	t.event(fmt.Sprint(step.Total.Out, ",1,"), 3, t.used, n, t.hold, t.out, limit)
	switch t.IntN(4) {
	case 0:
		return // nobody knows
	case 1: // refused: others have taken
		t.now++
		t.out += t.Int64N(5)
		f.Revision, f.Total.Out, f.TotalRevision = t.now, t.out, t.now
		t.Refused(&f)
		t.pending = t.pending[:len(t.pending)-1]
		t.event("", 7)
		return
	}
	t.now++
	t.hold, t.out, t.own, t.pending = n, step.Total.Out, t.now, nil
	if t.IntN(2) == 0 {
		t.Committed(t.now)
	} else {
		t.now++
		t.Read(&escrow.Reading{Store: escrow.Store{Cluster: 1}, Revision: t.now, Total: escrow.Total{Cluster: 1, Out: t.out}, TotalRevision: t.own,
			Own: escrow.Holding{Taken: t.hold}, OwnRevision: t.own})
	}
	t.event("", 1, t.hold, t.own)
}

// restored lets the process read a store of another cluster, send, and read again.
func (t *taker) restored() {
	t.now += 2
	total := escrow.Total{Cluster: 1 + t.Uint64N(2)}
	if t.IntN(2) == 0 || len(t.pending) == 0 && total.Cluster == 2 {
		total.Withheld = "restored"
	}
	hold := t.Int64N(20)
	if len(t.pending) > 0 && (t.IntN(2) == 0 || total == escrow.Total{Cluster: 2}) {
		hold = t.pending[t.IntN(len(t.pending))] // sent by what the old cluster had
	}
	f := escrow.Reading{Store: escrow.Store{Cluster: 2}, Revision: t.now, Total: total, TotalRevision: t.now, Own: escrow.Holding{Taken: hold}, OwnRevision: t.now}
	t.Read(&f)
	mark := []int64{int64(total.Cluster) - 1, 0}
	if total.Withheld != "" {
		mark[1] = 1
	}
	t.event("", 4, mark[0], mark[1], hold, t.now)
	if mark[0] == 1 && mark[1] == 0 {
		return
	}
	step, _ := t.Next(escrow.Rule{Limit: t.Int64N(80), Instances: 1, Share: -1}, &f, escrow.Use{Used: t.used, Need: t.Int64N(9)}, "i")
	t.Sent(step.Own.Taken)
	t.event("1,", 5, step.Own.Taken, mark[0], mark[1])
	t.now++
	if t.IntN(3) == 0 {
		f.Revision, f.TotalRevision = t.now, t.now
		t.Refused(&f)
		t.event("", 7)
		return
	}
	if t.IntN(2) == 0 {
		hold = step.Own.Taken
	}
	t.Read(&escrow.Reading{Store: escrow.Store{Cluster: 2}, Revision: t.now, Total: step.Total, TotalRevision: t.now, Own: escrow.Holding{Taken: hold}, OwnRevision: t.now})
	t.event("", 6, hold, t.now)
}

// sameID lets the process read a store that was restored under the same ID, and tell what it has
// taken if it notices that by its holding.
func (t *taker) sameID() {
	t.now++
	f := escrow.Reading{Store: escrow.Store{Cluster: 1}, Revision: t.now, Total: escrow.Total{Cluster: 1, Out: t.Int64N(40)}, TotalRevision: t.now}
	if f.OwnRevision = max(0, t.own+t.Int64N(5)-2); f.OwnRevision != 0 {
		f.Own.Taken = []int64{t.hold, t.May(), t.Int64N(20)}[t.IntN(3)]
		if n := len(t.pending); n > 0 && t.IntN(2) == 0 {
			f.Own.Taken = t.pending[t.IntN(n)]
		}
	}
	t.Read(&f)
	step, ok := t.Next(escrow.Rule{Limit: 80, Instances: 1, Share: -1}, &f, escrow.Use{Used: t.used, Need: t.Int64N(9)}, "i")
	if !ok || step.Total.Withheld == "" {
		t.event("0,", 8, f.Own.Taken, f.OwnRevision)
		return
	}
	t.event("1,", 8, f.Own.Taken, f.OwnRevision)
	if step.Total.Out != f.Total.Out {
		panic("a process that has noticed a restore changes the total")
	}
	t.Sent(step.Own.Taken)
	t.event(fmt.Sprint(step.Own.Taken, ","), 9)
}
