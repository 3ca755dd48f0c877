package protocol

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quotient-limiter/quotient/quota"
)

// Loan is permits that one instance, the host, has issued for another to use, the
// guest: a newcomer, which has no share yet. They count at the host.
type Loan struct {
	// Windows are those of the limits that bind the host, shortest first. The permits
	// may be used while all of them run. A host lends to a guest once in each window of
	// the shortest limit.
	Windows []quota.Window `json:"windows"`
	Permits int64          `json:"permits"`
}

const maxLoanBytes = 2 << 10

// ReadLoan reads a loan. That its host has issued the permits is not checked: the
// consumers of a provider trust each other with its limit.
func ReadLoan(value []byte) (l Loan, err error) {
	if len(value) > maxLoanBytes {
		return l, fmt.Errorf("loan: %d bytes are more than the most, %d", len(value), maxLoanBytes)
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("loan: %w", err)
	}
	var errs problems
	errs.add(len(l.Windows) == 0, "loan: it names no window")
	for _, w := range l.Windows {
		errs.add(w.Length < quota.MinWindow || w.Length > quota.MaxWindow, "loan: a window of %v; it must be of %v to %v", w.Length, quota.MinWindow, quota.MaxWindow)
	}
	return l, errors.Join(errs...)
}
