package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/load"
)

// keyLimiter is a limiter whose calls have keys.
type keyLimiter interface {
	// takeOf is take for the key of a number.
	takeOf(key int) (permit, error)
}

func keysOf(l *consumer.Limiter, n int) (keys []consumer.Key) {
	for k := range n {
		keys = append(keys, l.Key(fmt.Sprint("key-", k)))
	}
	return keys
}

func (l fleetLimiter) takeOf(key int) (permit, error) {
	p, err := l.keys[key].Take(context.Background(), 1, 0)
	if err != nil {
		return permit{}, err
	}
	return told(p), nil
}

// keyed is the keys that a generator's calls are for.
type keyed struct {
	*rand.Rand
	upTo  []float64     // the part of the calls that this key and those before it have
	tally []*load.Tally // of each key
}

func newKeyed(seed uint64, spread load.Spread, tallies []*load.Tally) *keyed {
	if len(tallies) == 0 {
		return nil
	}
	k := &keyed{rand.New(rand.NewPCG(seed, 1)), nil, tallies}
	sum := 0.0
	for _, part := range spread.Parts(len(tallies), 0) {
		sum += part
		k.upTo = append(k.upTo, sum)
	}
	return k
}

// take makes one call for a key by chance, and counts it as generator.call does.
func (k *keyed) take(l limiter, now int64) (permit, error) {
	n := min(sort.SearchFloat64s(k.upTo, k.Float64()), len(k.tally)-1)
	k.tally[n].Offer(now, 1)
	k.tally[n].Try(now)
	p, err := l.(keyLimiter).takeOf(n)
	if err != nil {
		k.tally[n].Refused(now)
		return p, err
	}
	k.tally[n].Taken(now, p.start)
	return p, nil
}
