package diagnose

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
)

// The oldest servers whose watches can be relied on: before them, a member that
// lags could deliver old events to a new watch, and progress notifications out
// of order.
var (
	oldest35 = *semver.New("3.5.22")
	oldest36 = *semver.New("3.6.2")
)

// CheckVersion returns nil if an etcd of that version can be relied on, and
// otherwise an error that says which can.
func CheckVersion(version string) error {
	v, err := semver.NewVersion(version)
	if err != nil {
		return fmt.Errorf("its version %q cannot be read: %w", version, err)
	}
	v.PreRelease = ""
	if v.LessThan(oldest35) || (v.Major == 3 && v.Minor == 6 && v.LessThan(oldest36)) {
		return fmt.Errorf("version %s is too old, its watches can deliver events out of order: 3.5.22, 3.6.2 or newer is needed", version)
	}
	return nil
}
