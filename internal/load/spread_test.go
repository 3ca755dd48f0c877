package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPartsSumToOneAndFallAsZipfSays(t *testing.T) {
	for _, s := range []float64{0, 0.5, 1, 8} {
		sum := 0.0
		parts := Spread{Zipf: s}.Parts(96, 0)
		for i, p := range parts {
			sum += p
			if want := parts[0] * math.Pow(float64(i+1), -s); math.Abs(p-want) > 1e-12 {
				t.Errorf("Zipf %v: part %d is %v, want %v", s, i, p, want)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("Zipf %v: the parts sum to %v", s, sum)
		}
	}
}

// Ranks move, and nothing else changes: after each change the same parts are there, the same
// arguments give the same ones, and hot instances are others where there are enough.
func TestRanksMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 40).Draw(t, "instances")
		s := Spread{Move: time.Second, Seed: rapid.Uint64().Draw(t, "seed")}
		if s.Hot = rapid.IntRange(0, n-1).Draw(t, "hot"); s.Hot == 0 {
			s.Zipf = 1
		}
		turn := rapid.Int64Range(0, 1e12).Draw(t, "turn")
		first, parts, next := s.Parts(n, 0), s.Parts(n, turn), s.Parts(n, turn+1)
		if !slices.Equal(parts, s.Parts(n, turn)) {
			t.Fatal("another time it has other parts")
		}
		if slices.Sort(first); s.Hot > 0 {
			for i := range n {
				if 2*s.Hot <= n && parts[i] > 0 && next[i] > 0 {
					t.Fatalf("instance %d stays hot", i)
				}
			}
			if slices.Equal(parts, next) {
				t.Fatal("nothing moves")
			}
		}
		slices.Sort(parts)
		for i := range n {
			if math.Abs(parts[i]-first[i]) > 1e-9 {
				t.Fatalf("the parts were %v, and are %v", first, parts)
			}
		}
	})
	top := map[int]bool{}
	for turn := range int64(40) {
		parts := Spread{Zipf: 1, Seed: 1}.Parts(20, turn)
		top[slices.Index(parts, slices.Max(parts))] = true
	}
	if len(top) < 10 {
		t.Errorf("of 20 instances %d had the first rank in 40 turns", len(top))
	}
}

// They first move within a window, and then as often as they are to.
func TestWhenRanksMove(t *testing.T) {
	s := Spread{Hot: 1, Move: 5 * time.Second}
	for _, c := range []struct{ start, now, turn, since int64 }{
		{Never, 99 * second, 0, 0}, {10 * second, 0, 0, 0}, {10 * second, 13*second + second/10, 0, 0},
		{10 * second, 13*second + 150*second/1000, 1, 13*second + 150*second/1000},
		{10 * second, 18*second + second/10, 1, 13*second + 150*second/1000},
		{10 * second, 29 * second, 4, 28*second + 150*second/1000},
	} {
		if turn, since := s.Turn(c.start, c.now); turn != c.turn || since != c.since {
			t.Errorf("%+v: turn %d since %d", c, turn, since)
		}
	}
	if turn, _ := (Spread{Hot: 1}).Turn(0, 99*second); turn != 0 {
		t.Errorf("turn %d of what does not move", turn)
	}
}

func TestASpreadIsNamed(t *testing.T) {
	for want, s := range map[string]Spread{
		"even": {}, "Zipf 0.5": {Zipf: 0.5}, "4 hot": {Hot: 4}, "1 hot, moving each 5s": {Hot: 1, Move: 5 * time.Second},
	} {
		if s.String() != want {
			t.Errorf("%+v is %q", s, s)
		}
	}
}
