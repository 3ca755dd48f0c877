package worker

import (
	"errors"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
)

// three lets each key have three permits.
type three struct {
	limiter
	left map[int]int
}

func (l three) takeOf(key int) (permit, error) {
	if l.left[key] == 3 {
		return permit{}, errors.New("spent")
	}
	l.left[key]++
	return permit{1e9, 2e9}, nil
}

// Calls are for keys by their parts, and each is counted for its key.
func TestCallsAreForKeys(t *testing.T) {
	s := sharedOf(t, "--limit 1000/s --keys 5 --zipf 1 --key-limit 3/s")
	sheet := s.c.Sheet(1e9)
	tallies := sheet.New()
	k := newKeyed(s.c.Seed, s.c.KeySpread, tallies[load.Misplaced+1:])
	l := three{left: map[int]int{}}
	for range 10_000 {
		_, _ = k.take(l, 1e9)
	}
	before := int64(10_000)
	for n, tally := range k.tally {
		c := tally.Counts()
		if len(c) != 1 || c[0].Issued != 3 || c[0].Doubtful != 0 || c[0].Offered >= before {
			t.Errorf("key %d: %+v, after %d calls for the key before", n, c, before)
			continue
		}
		before = c[0].Offered
	}
	if first := k.tally[0].Counts()[0].Offered; first < 4000 || first > 4800 { // 1/(1+1/2+1/3+1/4+1/5) of them
		t.Errorf("%d of 10,000 calls for the first key", first)
	}
}
