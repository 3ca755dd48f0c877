package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// MaxZipf is the largest exponent of a Zipf distribution. At 8 the second instance has
// less than half a percent of the calls already.
const MaxZipf = 8

// Spread says how calls spread over the instances of a fleet, which have ranks, and how that
// changes. The zero Spread is even. Its methods are pure.
type Spread struct {
	// Zipf is the s of a Zipf distribution: rank i, from 1, has a part of the calls in
	// proportion to i to the power of -s.
	Zipf float64
	// Hot is how many instances make all calls, each the same; 0: all do.
	Hot int
	// Move is how often the ranks change; 0: never.
	Move time.Duration
	// Seed is that of the ranks to which a Zipf distribution moves.
	Seed uint64
}

// Even reports whether all instances make the same calls.
func (s Spread) Even() bool { return s.Zipf == 0 && s.Hot == 0 }

// String names the spread, for people.
func (s Spread) String() string {
	text := "even"
	switch {
	case s.Hot > 0:
		text = fmt.Sprintf("%d hot", s.Hot)
	case s.Zipf > 0:
		text = fmt.Sprintf("Zipf %v", s.Zipf)
	}
	if s.Move > 0 {
		text += fmt.Sprintf(", moving each %v", s.Move)
	}
	return text
}

// firstMove is when the ranks first change, as a part of Move: so that they seldom change at
// the edge of a window.
const firstMove = 0.63

// Turn returns how often the ranks have changed by an instant of a run that measures from
// start on, and the instant of the latest change; both are 0 before the first.
func (s Spread) Turn(start, now int64) (turn, since int64) {
	first := int64(firstMove * float64(s.Move))
	if s.Move == 0 || start == Never || now < start+first {
		return 0, 0
	}
	turn = 1 + (now-start-first)/int64(s.Move)
	return turn, start + first + (turn-1)*int64(s.Move)
}

// Parts returns the part of all calls that each of n instances makes after so many changes of the
// ranks. They sum to 1, to within rounding.
func (s Spread) Parts(n int, turn int64) []float64 {
	parts := make([]float64, n)
	sum := 0.0
	for i, rank := range s.ranks(n, turn) {
		parts[i] = s.heat(rank)
		sum += parts[i]
	}
	for i := range parts {
		parts[i] /= sum
	}
	return parts
}

// heat is how many calls a rank, from 0, makes in proportion to others.
func (s Spread) heat(rank int) float64 {
	switch {
	case s.Hot == 0:
		return math.Pow(float64(rank+1), -s.Zipf)
	case rank < s.Hot:
		return 1
	}
	return 0
}

// ranks returns the rank of each of n instances. At first they are in order. Hot ones are
// then the next ones, so that each change moves all of them if that can be; other ranks are
// drawn anew.
func (s Spread) ranks(n int, turn int64) []int {
	if s.Hot == 0 && turn > 0 {
		return rand.New(rand.NewPCG(s.Seed, uint64(turn))).Perm(n)
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[(int64(i)+turn%int64(n)*int64(s.Hot))%int64(n)] = i
	}
	return ranks
}
