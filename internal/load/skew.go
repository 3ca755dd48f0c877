package load

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxZipf is the largest exponent of a Zipf skew. At 8 the second instance has
// less than half a percent of the calls already.
const MaxZipf = 8

// Skew says how calls spread over the instances of a fleet. The zero Skew is
// even.
type Skew struct {
	// Exponent is the s of a Zipf distribution: the i-th instance, from 1, has
	// a part of the calls in proportion to i to the power of -s. 0 is even.
	Exponent float64
}

// ParseSkew reads "even" or "zipf:S", S from 0 to MaxZipf.
func ParseSkew(s string) (Skew, error) {
	if s == "even" {
		return Skew{}, nil
	}
	text, ok := strings.CutPrefix(s, "zipf:")
	if !ok {
		return Skew{}, fmt.Errorf("skew %q is unknown: use even, or zipf:S such as zipf:1.0", s)
	}
	exponent, err := strconv.ParseFloat(text, 64)
	if err != nil || !(exponent >= 0 && exponent <= MaxZipf) {
		return Skew{}, fmt.Errorf("skew %q: the exponent %q is not a number from 0 to %d: use one such as zipf:1.0", s, text, MaxZipf)
	}
	return Skew{Exponent: exponent}, nil
}

// String returns the text that ParseSkew reads.
func (s Skew) String() string {
	if s.Even() {
		return "even"
	}
	return "zipf:" + strconv.FormatFloat(s.Exponent, 'f', -1, 64)
}

// Even reports whether every instance makes the same number of calls.
func (s Skew) Even() bool { return s.Exponent == 0 }

// Parts returns the part of all calls that each of n instances makes. They sum
// to 1, to within rounding.
func (s Skew) Parts(n int) []float64 {
	parts := make([]float64, n)
	sum := 0.0
	for i := range parts {
		parts[i] = math.Pow(float64(i+1), -s.Exponent)
		sum += parts[i]
	}
	for i := range parts {
		parts[i] /= sum
	}
	return parts
}
