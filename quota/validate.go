package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Bounds of a policy's and an instance's parts.
const (
	maxChanges       = 16   // announced changes in Policy.Next
	maxRequires      = 16   // features in Policy.Requires
	MaxNameBytes     = 128  // Instance.Name, Host, Version, one feature
	maxAuthorBytes   = 256  // Policy.Author
	MaxReasonBytes   = 1024 // Policy.Reason
	maxProviderBytes = 200  // a provider's name
	MaxWeight        = 1000 // Instance.Weight
	maxWeights       = 256  // overridden weights in Policy.Weights
)

// Every time must lie from earliest to before latest: far enough from the ends
// of an int64 of nanoseconds that sums with settle times and windows fit.
var (
	earliest = time.Unix(0, 0)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Validate returns all that is wrong with the policy, as joined *FieldErrors,
// or nil. Zero fields stand for their defaults, and the order of limits does
// not matter.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var errs problems
	errs.limits("limits", p.Limits)
	for i, c := range p.Next {
		errs.limits(fmt.Sprintf("next[%d].limits", i), c.Limits)
	}
	oneOf(&errs, "share", p.Share, ShareEqual, ShareWeighted, ShareDemand)
	oneOf(&errs, "mode", p.Mode, ModeEnforce, ModeShadow, ModePause)
	oneOf(&errs, "outage", p.Outage, OutageHold, OutageStop)
	p.checkShares(&errs)
	p.checkPacing(&errs)
	p.checkShape(&errs)
	p.checkTiming(&errs)
	p.checkGuard(&errs)
	p.checkDates(&errs)
	if p.MaxStep != 0 && !(p.MaxStep >= 1 && p.MaxStep <= float64(MaxPermits)) {
		errs.add("max_step", p.MaxStep, fmt.Sprintf("must be from 1 to %d", MaxPermits), fmt.Sprintf("0 means the default, %v", DefaultMaxStep))
	}
	if len(p.Requires) > maxRequires {
		errs.add("requires", len(p.Requires), fmt.Sprintf("at most %d features", maxRequires), "")
	}
	for i, r := range p.Requires {
		field := fmt.Sprintf("requires[%d]", i)
		errs.text(field, r, MaxNameBytes)
		if r == "" {
			errs.add(field, strconv.Quote(r), "a feature has a name", "name it, or leave it out")
		}
	}
	errs.text("author", p.Author, maxAuthorBytes)
	errs.text("reason", p.Reason, MaxReasonBytes)
	return errors.Join(errs...)
}

func (p *Policy) checkShares(errs *problems) {
	if len(p.Weights) > maxWeights {
		errs.add("weights", fmt.Sprintf("(%d of them)", len(p.Weights)), fmt.Sprintf("at most %d overridden weights", maxWeights), "set weights where the instances join")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Weights)) {
		errs.text("weights", name, MaxNameBytes)
		if w := p.Weights[name]; w < 1 || w > MaxWeight {
			errs.add(fmt.Sprintf("weights[%q]", shorten(name)), w, fmt.Sprintf("must be from 1 to %d", MaxWeight), "")
		}
	}
	if p.Floor < 0 || p.Floor > 100 {
		errs.add("floor_percent", p.Floor, "must be from 1 to 100", fmt.Sprintf("0 stands for %d", defaultFloor))
	}
}

func (p *Policy) checkPacing(errs *problems) {
	oneOf(errs, "pacing", p.Pacing, PacingOff, PacingEven)
}

func (p *Policy) checkGuard(errs *problems) {
	if p.Guard < 0 {
		errs.add("guard", p.Guard, "must not be negative", "0 switches it off")
	}
	_, shortest := p.windows()
	if shortest <= 0 {
		return
	}
	// Not 2*guard, nor a sum: they could overflow.
	most := (shortest - 1) / 2
	switch {
	case p.Guard > most:
		errs.add("guard", p.Guard, fmt.Sprintf("leaves nothing of the shortest window, %v", shortest), "it must be less than half of that")
	case p.GuardAuto && p.ClockError > most-max(p.Guard, 0):
		errs.add("guard", FormatGuard(p.Guard, true), fmt.Sprintf("with clock_error %v it can leave nothing of the shortest window, %v", p.ClockError, shortest),
			"lower clock_error: together they must be less than half of that window")
	}
}

func (p *Policy) checkDates(errs *problems) {
	if !p.From.IsZero() {
		errs.when("from", p.From)
	}
	if len(p.Next) > maxChanges {
		errs.add("next", len(p.Next), fmt.Sprintf("at most %d announced changes", maxChanges), "")
	}
	last := p.From
	for i, c := range p.Next {
		field := fmt.Sprintf("next[%d].from", i)
		errs.when(field, c.From)
		if !c.From.After(last) {
			errs.add(field, c.From.UTC().Format(time.RFC3339Nano), "must be after the change before it", "sort the changes by time")
		}
		last = c.From
	}
	if !p.Time.IsZero() {
		errs.when("time", p.Time)
	}
}

// Validate returns all that is wrong with the instance, as joined *FieldErrors,
// or nil. An instance may end at the instant at which it begins: one that leaves
// while it joins never takes part.
func (i *Instance) Validate() error {
	var errs problems
	errs.text("name", i.Name, MaxNameBytes)
	errs.text("host", i.Host, MaxNameBytes)
	errs.text("version", i.Version, MaxNameBytes)
	if i.Weight < 0 || i.Weight > MaxWeight {
		errs.add("weight", i.Weight, fmt.Sprintf("must be from 1 to %d", MaxWeight), "0 stands for 1")
	}
	for _, t := range []struct {
		field string
		at    time.Time
	}{{"started", i.Started}, {"from", i.From}, {"until", i.Until}} {
		if !t.at.IsZero() {
			errs.when(t.field, t.at)
		}
	}
	if !i.Until.IsZero() && i.Until.Before(i.From) {
		errs.add("until", i.Until.UTC().Format(time.RFC3339Nano), "lies before from, "+i.From.UTC().Format(time.RFC3339Nano), "an instance ends after it begins")
	}
	return errors.Join(errs...)
}
