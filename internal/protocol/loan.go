package protocol

import (
	"crypto/ed25519"
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
	// Seal is the host's signature.
	Seal string `json:"seal"`
}

const maxLoanBytes = 2 << 10

// SealBy signs a loan with its host's key.
func (l *Loan) SealBy(key ed25519.PrivateKey, host, guest string) {
	l.Seal = sign(key, l.text(host, guest))
}

// ReadLoan reads a loan that the host itself has made to the guest.
func ReadLoan(value []byte, host, guest string) (l Loan, err error) {
	if len(value) > maxLoanBytes {
		return l, fmt.Errorf("loan: %d bytes are more than the most, %d", len(value), maxLoanBytes)
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("loan: %w", err)
	}
	var errs problems
	errs.add(!signed(host, l.Seal, l.text(host, guest)), "loan: it is not signed by its host")
	errs.add(len(l.Windows) == 0, "loan: it names no window")
	for _, w := range l.Windows {
		errs.add(w.Length < quota.MinWindow || w.Length > quota.MaxWindow, "loan: a window of %v; it must be of %v to %v", w.Length, quota.MinWindow, quota.MaxWindow)
	}
	return l, errors.Join(errs...)
}

func (l *Loan) text(host, guest string) []byte {
	return fmt.Appendf(nil, "quotient: %q lends %q %d permits in %v", host, guest, l.Permits, l.Windows)
}
