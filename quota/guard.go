package quota

import (
	"fmt"
	"strings"
	"time"
)

// featureGuardAuto is what a policy with GuardAuto requires of an instance
// (Policy.Requires). It is written and read with the policy by itself: a version
// that does not know it must give itself a share of 0, not a guard of its own.
const featureGuardAuto = "guard-auto"

// guardAuto is the word for a guard that follows the clock's error.
const guardAuto = "auto"

// ParseGuard reads a guard as people write it: "20ms" is a fixed one, "auto"
// follows the measured error of the clock, and "auto+20ms" does with 20 ms on
// top, for the way to the provider. The duration is not checked against any
// bound; Policy.Validate does that.
func ParseGuard(s string) (fixed time.Duration, auto bool, err error) {
	rest, auto := strings.CutPrefix(s, guardAuto)
	if auto && rest == "" {
		return 0, true, nil
	}
	if auto {
		var plus bool
		if rest, plus = strings.CutPrefix(rest, "+"); !plus {
			return 0, false, guardError(s)
		}
	}
	if fixed, err = time.ParseDuration(rest); err != nil || auto && strings.HasPrefix(rest, "+") {
		return 0, false, guardError(s)
	}
	return fixed, auto, nil
}

func guardError(s string) error {
	return fmt.Errorf("%q is no guard: write a duration like %q, %q, or %q", shorten(s), "20ms", guardAuto, "auto+20ms")
}

// FormatGuard is the inverse of ParseGuard.
func FormatGuard(fixed time.Duration, auto bool) string {
	switch {
	case !auto:
		return fixed.String()
	case fixed == 0:
		return guardAuto
	}
	return guardAuto + "+" + fixed.String()
}

// guard is a guard in JSON. It is read as ParseGuard does, and written as the
// duration alone, beside guard_auto and the feature: so versions that do not
// know the word can read the policy, see what it requires, and issue nothing. A
// policy that they cannot read at all would leave the one before it in force.
type guard struct {
	fixed time.Duration
	auto  bool
}

func (g guard) MarshalText() ([]byte, error) { return duration(g.fixed).MarshalText() }

func (g *guard) UnmarshalText(b []byte) (err error) {
	g.fixed, g.auto, err = ParseGuard(string(b))
	return err
}
