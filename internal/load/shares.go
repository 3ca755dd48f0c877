package load

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// sharesEvery is how often shares are kept at first.
	sharesEvery = 200 * time.Millisecond
	// mostSamples bounds how many samples are kept: then every other one is
	// dropped, and the next ones come half as often.
	mostSamples = 600
)

// Holder is one incarnation of an instance.
type Holder struct {
	Slot  int
	Since int64 // when it joined
}

// Shares is what each instance of a fleet may issue, over time. The zero Shares is
// empty.
type Shares struct {
	at    []int64
	held  []map[Holder]int64
	every int64
}

// Record says that these shares were held at the instant at, which must not be
// before the one recorded last.
func (s *Shares) Record(at int64, held map[Holder]int64) {
	s.every = max(s.every, int64(sharesEvery))
	if n := len(s.at); n > 0 && at < s.at[n-1]+s.every {
		return
	}
	if len(s.at) == mostSamples {
		for i := range mostSamples / 2 {
			s.at[i], s.held[i] = s.at[2*i], s.held[2*i]
		}
		s.at, s.held = s.at[:mostSamples/2], s.held[:mostSamples/2]
		s.every *= 2
	}
	s.at, s.held = append(s.at, at), append(s.held, held)
}

// Band is the shares of some instances together.
type Band struct {
	Holders int
	Sums    []int64 // by instant
}

// Bands folds the instances into so many bands at most, of equally many: in order
// of when they were there first, and among those by when they were there last. at
// are the instants of the sums.
func (s *Shares) Bands(most int) (at []int64, bands []Band) {
	first, last := map[Holder]int{}, map[Holder]int{}
	for i, held := range s.held {
		for h := range held {
			if _, ok := first[h]; !ok {
				first[h] = i
			}
			last[h] = i
		}
	}
	holders := slices.SortedFunc(maps.Keys(first), func(a, b Holder) int {
		return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(last[a], last[b]),
			cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Since, b.Since))
	})
	if len(holders) == 0 {
		return nil, nil
	}
	each := (len(holders) + most - 1) / most
	for some := range slices.Chunk(holders, each) {
		b := Band{Holders: len(some), Sums: make([]int64, len(s.at))}
		for i, held := range s.held {
			for _, h := range some {
				b.Sums[i] += held[h]
			}
		}
		bands = append(bands, b)
	}
	return s.at, bands
}
