package config

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// Every tenth weighs 10 where shares are by weight, and all weigh 1 elsewhere. Calls
// follow the skew and the weights.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		args    string
		weights []int64
		calls   []float64
	}{
		{"", []int64{1, 1, 1, 1}, []float64{0.25, 0.25, 0.25, 0.25}},
		{"--share weighted", []int64{10, 1, 1, 1}, []float64{10. / 13, 1. / 13, 1. / 13, 1. / 13}},
		{"--share weighted --skew zipf:1", []int64{10, 1, 1, 1}, []float64{120. / 133, 6. / 133, 4. / 133, 3. / 133}},
	} {
		of, err := ParseFlags(append(strings.Fields(c.args), "--instances", "4"), noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := of.Weights(); !slices.Equal(got, c.weights) {
			t.Errorf("%s: weights %v, want %v", c.args, got, c.weights)
		}
		if got := of.Skew.Parts(of.Weights()); !slices.EqualFunc(got, c.calls, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: calls %v, want %v", c.args, got, c.calls)
		}
	}
}
