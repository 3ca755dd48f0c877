package config

import (
	"math"
	"slices"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

func TestWeights(t *testing.T) {
	for text, want := range map[string][]int64{
		"":         {1, 1, 1, 1},
		heavyTenth: {10, 1, 1, 1},
		"zipf:1":   {8, 4, 3, 2},
		"zipf:8":   {1000, 4, 1, 1},
	} {
		if got, err := WeightsBy(text, 4); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

// Calls follow the weights where every tenth is heavy, and else the skew alone.
func TestCallsByWeight(t *testing.T) {
	for _, c := range []struct {
		weights string
		skew    float64
		want    []float64
	}{
		{"", 0, []float64{0.25, 0.25, 0.25, 0.25}},
		{heavyTenth, 0, []float64{10. / 13, 1. / 13, 1. / 13, 1. / 13}},
		{"zipf:8", 0, []float64{0.25, 0.25, 0.25, 0.25}},
		{"zipf:8", 1, []float64{0.48, 0.24, 0.16, 0.12}},
	} {
		weights, err := WeightsBy(c.weights, 4)
		if err != nil {
			t.Fatal(err)
		}
		of := &Config{Instances: 4, policy: quota.Policy{Share: quota.ShareWeighted}, weights: c.weights, Skew: load.Skew(c.skew)}
		got := of.Calls(weights)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("weights %q, skew %v: %v, want %v", c.weights, c.skew, got, c.want)
		}
	}
}
