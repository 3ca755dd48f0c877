package config

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
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
		{"--share weighted --zipf 1", []int64{10, 1, 1, 1}, []float64{120. / 133, 6. / 133, 4. / 133, 3. / 133}},
	} {
		of, err := ParseFlags(append(strings.Fields(c.args), "--instances", "4"), noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := of.Weights(); !slices.Equal(got, c.weights) {
			t.Errorf("%s: weights %v, want %v", c.args, got, c.weights)
		}
		if got := of.Spread.Parts(of.Weights(), 0); !slices.EqualFunc(got, c.calls, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: calls %v, want %v", c.args, got, c.calls)
		}
	}
}

// Under full demand everybody asks for more than any share; otherwise the load
// is what was asked for, and no more.
func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name      string
		c         Config
		part      float64
		total     int64
		wantMean  float64
		wantFloor int64
	}{
		{"more permits than instances", Config{Demand: 1.5, Instances: 96}, 1.0 / 96, 300000, 4687.5, 3126},
		{"fewer permits than instances", Config{Demand: 1.5, Instances: 96}, 1.0 / 96, 10, 0.15625, 2},
		{"a remainder of one", Config{Demand: 1, Instances: 96}, 1.0 / 96, 97, 97.0 / 96, 3},
		{"no permits", Config{Demand: 1.5, Instances: 96}, 1.0 / 96, 0, 0, 1},
		{"less demand than the limit", Config{Demand: 0.5, Instances: 96}, 1.0 / 96, 96, 0.5, 0},
		{"uneven", Config{Demand: 1.5, Spread: load.Spread{Zipf: 1}, Instances: 96}, 0.25, 100, 37.5, 0},
		{"hot", Config{Demand: 1.5, Spread: load.Spread{Hot: 1}, Instances: 96}, 1, 100, 150, 0},
	} {
		mean, floor := c.c.Calls(c.part, c.total)
		if math.Abs(mean-c.wantMean) > 1e-9 || floor != c.wantFloor {
			t.Errorf("%s: mean %v, floor %d; want %v, %d", c.name, mean, floor, c.wantMean, c.wantFloor)
		}
	}
}
