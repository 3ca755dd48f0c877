package load

import (
	"math"
	"slices"
	"testing"
)

func TestPartsSumToOneAndFallAsZipfSays(t *testing.T) {
	for _, text := range []string{"even", "zipf:0", "zipf:0.5", "zipf:1", "zipf:1.0", "zipf:8"} {
		s, err := ParseSkew(text)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		parts := s.Parts(slices.Repeat([]int64{1}, 96))
		for i, p := range parts {
			sum += p
			if want := parts[0] * math.Pow(float64(i+1), -float64(s)); math.Abs(p-want) > 1e-12 {
				t.Errorf("%s: part %d is %v, want %v", text, i, p, want)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: the parts sum to %v", text, sum)
		}
	}
}

func TestSkewSurvivesItsText(t *testing.T) {
	for _, text := range []string{"even", "zipf:0.5", "zipf:1", "zipf:7.25"} {
		s, err := ParseSkew(text)
		if err != nil || s.String() != text {
			t.Errorf("%s became %s, %v", text, s, err)
		}
	}
}

func TestBadSkewIsRefused(t *testing.T) {
	for _, text := range []string{"", "zipf", "zipf:", "zipf:-1", "zipf:9", "zipf:NaN", "zipf:Inf", "uneven", "zipf:1x"} {
		if s, err := ParseSkew(text); err == nil {
			t.Errorf("%q was taken for %v", text, s)
		}
	}
}

// Under full demand everybody asks for more than any share; otherwise the load
// is what was asked for, and no more.
func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name      string
		demand    Demand
		part      float64
		total     int64
		wantMean  float64
		wantFloor int64
	}{
		{"more permits than instances", Demand{1.5, Skew(0), 96}, 1.0 / 96, 300000, 4687.5, 3126},
		{"fewer permits than instances", Demand{1.5, Skew(0), 96}, 1.0 / 96, 10, 0.15625, 2},
		{"a remainder of one", Demand{1, Skew(0), 96}, 1.0 / 96, 97, 97.0 / 96, 3},
		{"no permits", Demand{1.5, Skew(0), 96}, 1.0 / 96, 0, 0, 1},
		{"less demand than the limit", Demand{0.5, Skew(0), 96}, 1.0 / 96, 96, 0.5, 0},
		{"uneven", Demand{1.5, Skew(1), 96}, 0.25, 100, 37.5, 0},
	} {
		mean, floor := c.demand.Of(c.part, c.total)
		if math.Abs(mean-c.wantMean) > 1e-9 || floor != c.wantFloor {
			t.Errorf("%s: mean %v, floor %d; want %v, %d", c.name, mean, floor, c.wantMean, c.wantFloor)
		}
	}
}
