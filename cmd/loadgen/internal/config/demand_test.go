package config

import (
	"math"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
)

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
