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
