package config

import (
	"math"

	"github.com/quotient-limiter/quotient/quota"
)

const (
	// heavyTenth, as weights, lets every tenth instance weigh heavyWeight and all
	// others 1; calls come in proportion.
	heavyTenth  = "tenth"
	heavyWeight = 10
	// fineWeight is the least weight that follows a skew closely enough.
	fineWeight = 2
)

// Weights returns the weights of the instances by their slots: all 1 where shares are
// not by weight, else as heavyTenth says, or in proportion to the calls of a skew.
func (c *Config) Weights() []int64 {
	weights, parts := make([]int64, c.Instances), c.weights.Parts(c.Instances)
	// The first has the largest part. The last weighs fineWeight, if there is room:
	// sums of weights are what a split by weight costs.
	most := min(quota.MaxWeight, fineWeight*parts[0]/parts[len(parts)-1])
	for slot := range weights {
		weights[slot] = 1
		switch {
		case c.policy.Share != quota.ShareWeighted:
		case !c.weights.Even():
			weights[slot] = max(1, int64(math.Round(most*parts[slot]/parts[0])))
		case slot%10 == 0:
			weights[slot] = heavyWeight
		}
	}
	return weights
}

// Calls returns the part of all calls that each instance makes: by the skew, and
// where every tenth is heavy in proportion to the weights too.
func (c *Config) Calls() []float64 {
	parts, weights, sum := c.Skew.Parts(c.Instances), c.Weights(), 0.0
	for slot := range parts {
		if c.weights.Even() {
			parts[slot] *= float64(weights[slot])
		}
		sum += parts[slot]
	}
	for slot := range parts {
		parts[slot] /= sum
	}
	return parts
}
