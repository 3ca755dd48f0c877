package consumer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
)

// TakeUsual is Take for Usual(most) permits. It is for calls whose cost is known late, such as the tokens
// of an answer: settle each with what it has cost, so that the next ones take what is usual.
//
//	permit, err := limiter.Label("chat").TakeUsual(ctx, 4096, consumer.Forever)
//	...
//	err = permit.Settle(answer.Usage.TotalTokens)
//
// A dearer call leaves a debt: see Permit.Settle. No rule bounds the debts of several dear calls that are under way at
// once: it is by chance that they stay within a window's permits. With 40 calls a window, whose costs are spread widely,
// one run of 200 windows in some thousands owes a little more.
func (l *Limiter) TakeUsual(ctx context.Context, most int64, maxWait time.Duration) (Permit, error) {
	return l.Take(ctx, l.Usual(most), maxWait)
}

// Usual returns how many permits to take for one call of the label, at most most: of the last 100 calls
// that were settled, 90 cost no more. Until 20 calls were settled since Usual was first called it returns
// most, which is to be what a call can cost, or debts of the first calls grow with their number.
//
// It is for Take, TakeFunc and TakeAll of this limiter, and of its keys: a key's calls count with those of
// their label, and Key has no Usual of its own. Calls without a label have an estimate too. The first 20
// labels of a limiter have one each, and all others one together. The estimate is of this instance, and
// begins anew with the process.
func (l *Limiter) Usual(most int64) int64 {
	if l.bad {
		return most // Take says what is wrong
	}
	at := l.costs()
	if at.Load() == nil {
		at.CompareAndSwap(nil, &tally.Costs{})
	}
	return min(most, at.Load().Usual(most))
}

// costs returns where those of the calls' label are; nil is there until somebody asks for them.
func (o *origin) costs() *atomic.Pointer[tally.Costs] {
	if o.label != nil {
		return &o.label.count.costs
	}
	return &o.core.labels.bareCosts
}

// settledAt notes the cost of a call, if somebody asks what is usual.
func (o *origin) settledAt(cost int64) {
	if c := o.costs().Load(); c != nil {
		c.Settled(cost)
	}
}
