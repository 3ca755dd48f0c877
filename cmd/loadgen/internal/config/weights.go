package config

import (
	"fmt"
	"math"

	"github.com/quotient-limiter/quotient/internal/load"
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

// SharesByWeight returns the weights of the run's instances, or nothing where
// shares are not by weight.
func (c *Config) SharesByWeight() string {
	if c.policy.Share != quota.ShareWeighted {
		return ""
	}
	return c.weights
}

// WeightsBy returns the weights of n instances by their slots: all 1 for an empty
// text, else as heavyTenth says, or in proportion to the calls of a skew.
func WeightsBy(text string, n int) ([]int64, error) {
	weights := make([]int64, n)
	for slot := range weights {
		weights[slot] = 1
		if text == heavyTenth && slot%10 == 0 {
			weights[slot] = heavyWeight
		}
	}
	if text == "" || text == heavyTenth {
		return weights, nil
	}
	skew, err := load.ParseSkew(text)
	if err != nil || skew.Even() {
		return nil, fmt.Errorf("%q is unknown: use %s, or zipf:S such as zipf:1.0", text, heavyTenth)
	}
	parts := skew.Parts(n)
	// The first has the largest part. The last weighs fineWeight, if there is room:
	// sums of weights are what a split by weight costs.
	most := min(quota.MaxWeight, fineWeight*parts[0]/parts[n-1])
	for slot := range weights {
		weights[slot] = max(1, int64(math.Round(most*parts[slot]/parts[0])))
	}
	return weights, nil
}

// Calls returns the part of all calls that each instance makes: by the skew, and
// where every tenth is heavy in proportion to the weights too.
func (c *Config) Calls(weights []int64) []float64 {
	parts, sum := c.Skew.Parts(c.Instances), 0.0
	for slot := range parts {
		if c.SharesByWeight() == heavyTenth {
			parts[slot] *= float64(weights[slot])
		}
		sum += parts[slot]
	}
	for slot := range parts {
		parts[slot] /= sum
	}
	return parts
}
