package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/quota"
)

// sharing are the flags of set that say how a limit is divided and released.
type sharing struct {
	share, pacing string
	floor         int64
	weights       []string
	shape         string
	burst         int64
	warmUp        time.Duration
}

func (s *sharing) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.share, "share", "", "divide the limit by this `rule`: equal, weighted or demand; new policies: equal")
	flags.Int64Var(&s.floor, "floor", 0, "`PERCENT` of the limit that share demand always divides equally; new policies: 10")
	flags.StringArrayVar(&s.weights, "weight", nil, "`NAME=WEIGHT` overrides the weight that instances of that name joined with, for share weighted; NAME= gives it back; repeatable")
	flags.StringVar(&s.pacing, "pacing", "", "release the permits of a window `how`: off (at once) or even; new policies: off")
	flags.StringVar(&s.shape, "shape", "", "count `how`: in fixed windows, in a sliding one, or in a bucket; new policies: fixed")
	flags.Int64Var(&s.burst, "burst", 0, "`PERMITS` that a bucket lets the fleet issue at once; new policies: all of a limit's (0)")
	flags.DurationVar(&s.warmUp, "warm-up", 0, "over this time the share of an instance that has just started grows to the whole; 0 is off")
}

// check finds what is wrong with the flags themselves.
func (s *sharing) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("share") && !among(s.share, quota.ShareEqual, quota.ShareWeighted, quota.ShareDemand) {
		return usageError(cmd, "--share %q: must be equal, weighted or demand", s.share)
	}
	if given("pacing") && !among(s.pacing, quota.PacingOff, quota.PacingEven) {
		return usageError(cmd, "--pacing %q: must be off or even", s.pacing)
	}
	if given("shape") && !among(s.shape, quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket) {
		return usageError(cmd, "--shape %q: must be fixed, sliding or bucket", s.shape)
	}
	if given("burst") && (s.burst < 0 || s.burst > quota.MaxPermits) {
		return usageError(cmd, "--burst %d: must be from 0 (all of a limit's permits) to %d", s.burst, quota.MaxPermits)
	}
	if given("warm-up") && s.warmUp < 0 {
		return usageError(cmd, "--warm-up %v: must not be negative; 0 switches it off", s.warmUp)
	}
	if given("floor") && (s.floor < 1 || s.floor > 100) {
		return usageError(cmd, "--floor %d: must be from 1 to 100, in percent", s.floor)
	}
	for _, text := range s.weights {
		if _, _, err := parseWeight(text); err != nil {
			return usageError(cmd, "--weight %v", err)
		}
	}
	return nil
}

func among[T ~string](text string, all ...T) bool {
	for _, a := range all {
		if text == string(a) {
			return true
		}
	}
	return false
}

// parseWeight reads NAME=WEIGHT; a weight of 0 stands for NAME=.
func parseWeight(text string) (name string, weight int64, err error) {
	i := strings.LastIndexByte(text, '=')
	if i <= 0 {
		return "", 0, fmt.Errorf("%q: write NAME=WEIGHT, as in big-host=8", text)
	}
	name = text[:i]
	if text[i+1:] == "" {
		return name, 0, nil
	}
	weight, err = strconv.ParseInt(text[i+1:], 10, 64)
	if err != nil || weight < 1 || weight > quota.MaxWeight {
		return "", 0, fmt.Errorf("%q: the weight must be a whole number from 1 to %d", text, quota.MaxWeight)
	}
	return name, weight, nil
}

// apply changes the policy.
func (s *sharing) apply(p *quota.Policy, given func(string) bool) error {
	if given("share") {
		p.Share = quota.ShareRule(s.share)
	}
	if given("floor") {
		p.Floor = s.floor
	}
	if given("pacing") {
		p.Pacing = quota.Pacing(s.pacing)
	}
	if given("shape") {
		if p.Shape = quota.Shape(s.shape); p.Shape != quota.ShapeBucket {
			p.Burst = 0 // it belongs to the bucket that there was
		}
	}
	if given("burst") {
		p.Burst = s.burst
	}
	if given("warm-up") {
		p.WarmUp = s.warmUp
	}
	for _, text := range s.weights {
		name, weight, err := parseWeight(text)
		if err != nil {
			return err
		}
		if weight == 0 {
			delete(p.Weights, name)
			continue
		}
		if p.Weights == nil {
			p.Weights = map[string]int64{}
		}
		p.Weights[name] = weight
	}
	return nil
}

// shapeOf says how a policy counts.
func shapeOf(p *quota.Policy) string {
	words := []string{string(p.Shape)}
	if p.Shape == quota.ShapeBucket {
		if p.Burst == 0 {
			words = append(words, "burst of all permits")
		} else {
			words = append(words, fmt.Sprintf("burst %d", p.Burst))
		}
	}
	if p.WarmUp > 0 {
		words = append(words, "warm-up "+p.WarmUp.String())
	}
	return strings.Join(words, ", ")
}

// sharedBy says how a policy divides its limits.
func sharedBy(p *quota.Policy) string {
	words := []string{string(p.Share)}
	if p.Share == quota.ShareDemand {
		words = append(words, fmt.Sprintf("%d%% of it always equally", p.Floor))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Weights)) {
		words = append(words, fmt.Sprintf("%s weighs %d", name, p.Weights[name]))
	}
	return strings.Join(words, ", ")
}
