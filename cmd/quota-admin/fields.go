package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// field is a flag of set for a field of a policy besides its limits.
type field struct {
	flag, usage string
	// parse returns what a value changes in a policy.
	parse func(text string) (func(*quota.Policy), error)
}

// fields are in the order of what depends on each other: a change of the settle time comes
// before the freshness, and that of the shape before the burst.
var fields = []field{
	{"share", "`rule` that divides the limit: equal, weighted or demand; new policies: equal",
		value(oneOf(quota.ShareEqual, quota.ShareWeighted, quota.ShareDemand), func(p *quota.Policy, v quota.ShareRule) { p.Share = v })},
	{"floor", "`PERCENT` of the limit that share demand always divides equally; new policies: 10",
		value(whole(1, 100), func(p *quota.Policy, v int64) { p.Floor = v })},
	{"weight", "`NAME=WEIGHT` overrides the weight of instances of that name, for share weighted; NAME= removes the override; repeatable",
		value(parseWeight, setWeight)},
	{"outage", "`rule` for instances cut off from etcd: hold the last share, or stop; new policies: hold",
		value(oneOf(quota.OutageHold, quota.OutageStop), func(p *quota.Policy, v quota.Outage) { p.Outage = v })},
	{"settle", "how long a larger share is held back; new policies: 3s", value(positive, setSettle)},
	{"freshness", "how old the proof of a view may be; new policies: five sixths of settle",
		value(positive, func(p *quota.Policy, d time.Duration) { p.Freshness = d })},
	{"clock-error", "bound on the error of a host's clock; new policies: 50ms",
		value(positive, func(p *quota.Policy, d time.Duration) { p.ClockError = d })},
	{"guard", "issue nothing within `G` of a window's edges: 20ms; auto or auto+20ms follows the clock's error; 0 is off", parseGuard},
	{"pacing", "`how` the permits of a window are released: off (at once) or even; new policies: off",
		value(oneOf(quota.PacingOff, quota.PacingEven), func(p *quota.Policy, v quota.Pacing) { p.Pacing = v })},
	{"shape", "`how` permits are counted: fixed windows, sliding window or bucket; new policies: fixed",
		value(oneOf(quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket), setShape)},
	{"burst", "`PERMITS` that the fleet may issue at once under shape bucket; new policies: 0, all of a limit's",
		value(whole(0, quota.MaxPermits), func(p *quota.Policy, v int64) { p.Burst = v })},
	{"warm-up", "time in which the share of a new instance grows to its full size; 0 is off",
		value(notNegative, func(p *quota.Policy, d time.Duration) { p.WarmUp = d })},
	{"max-step", "greatest `FACTOR` of one change, up or down: kept in the policy, and used now; new policies: 10x",
		value(parseFactor, func(p *quota.Policy, f float64) { p.MaxStep = f })},
}

// value makes a field's parse of a parser and a setter.
func value[T any](parse func(string) (T, error), set func(*quota.Policy, T)) func(string) (func(*quota.Policy), error) {
	return func(text string) (func(*quota.Policy), error) {
		v, err := parse(text)
		return func(p *quota.Policy) { set(p, v) }, err
	}
}

func oneOf[T ~string](all ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(all, T(text)) {
			return T(text), nil
		}
		var words []string
		for _, v := range all[:len(all)-1] {
			words = append(words, string(v))
		}
		return "", fmt.Errorf("must be %s or %s", strings.Join(words, ", "), all[len(all)-1])
	}
}

func whole(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return n, nil
	}
}

func positive(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be more than 0")
	}
	return d, err
}

func notNegative(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative; 0 switches it off")
	}
	return d, err
}

// setSettle takes a freshness that was left at its default along.
func setSettle(p *quota.Policy, d time.Duration) {
	if p.Freshness == (quota.Policy{Settle: p.Settle}).WithDefaults().Freshness {
		p.Freshness = 0
	}
	p.Settle = d
}

// setShape drops the burst of the bucket that there was.
func setShape(p *quota.Policy, v quota.Shape) {
	if p.Shape = v; v != quota.ShapeBucket {
		p.Burst = 0
	}
}

func parseGuard(text string) (func(*quota.Policy), error) {
	fixed, auto, err := quota.ParseGuard(text)
	if err == nil && fixed < 0 {
		err = errors.New("must not be negative; 0 switches it off")
	}
	return func(p *quota.Policy) { p.Guard, p.GuardAuto = fixed, auto }, err
}

// weight is a value of --weight; 0 gives it back.
type weight struct {
	name  string
	value int64
}

// parseWeight reads NAME=WEIGHT or NAME=.
func parseWeight(text string) (w weight, err error) {
	i := strings.LastIndexByte(text, '=')
	if i <= 0 {
		return w, errors.New("write NAME=WEIGHT, as in big-host=8")
	}
	w.name = text[:i]
	if text[i+1:] != "" {
		w.value, err = whole(1, quota.MaxWeight)(text[i+1:])
	}
	return w, err
}

func setWeight(p *quota.Policy, w weight) {
	if w.value == 0 {
		delete(p.Weights, w.name)
		return
	}
	if p.Weights == nil {
		p.Weights = map[string]int64{}
	}
	p.Weights[w.name] = w.value
}

// parseFactor reads a value of --max-step: "10x" or "10".
func parseFactor(text string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || !(n >= 1 && n <= float64(quota.MaxPermits)) {
		return 0, fmt.Errorf("write a number from 1 to %d, as in 10x", quota.MaxPermits)
	}
	return n, nil
}
