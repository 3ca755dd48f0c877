package protocol

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quotient-limiter/quotient/quota"
)

// Loan is permits that one instance, the host, has issued for another to use, the guest. They
// count at the host.
type Loan struct {
	// Windows are those of the limits that bind the host, shortest first. The permits may
	// be used while all of them run.
	Windows []quota.Window `json:"windows"`
	// Long are the long windows in which the host has charged the permits too: a length and
	// a start of each, in nanoseconds.
	Long []int64 `json:"long,omitempty"`
	// Permits is the sum of what the host has lent to the guest in exactly these windows.
	Permits int64 `json:"permits"`
}

// Need is what an instance asks one host for, or every host of a sample.
type Need struct {
	// Windows are those of the limits that bind the guest, shortest first.
	Windows []quota.Window `json:"windows"`
	// Permits are asked for. Poor are those of them that the guest lacks to its fair share,
	// and Critical those that its critical calls lack. All are in thousandths.
	Permits  int64 `json:"permits"`
	Poor     int64 `json:"poor,omitempty"`
	Critical int64 `json:"critical,omitempty"`
	// Edge is what a large call that stands wants of each host at the next edge of the shortest
	// window, in thousandths too.
	Edge int64 `json:"edge,omitempty"`
	// Sample says which hosts are asked, if not one.
	Sample
}

// Sample names a part of all hosts without a list of them.
type Sample struct {
	Salt uint64 `json:"salt,omitempty"`
	Part uint64 `json:"part,omitempty"` // of 2^32; 0 if one host is asked
}

// Rank orders the hosts with these hashes by chance: a sample is those of the lowest ranks.
func (s Sample) Rank(hash uint64) uint64 { return Mix(hash ^ s.Salt) }

// Has reports whether the host with this hash is in the sample.
func (s Sample) Has(hash uint64) bool { return s.Rank(hash)>>32 < s.Part }

// Whole rounds an amount of thousandths for the host with this hash: down, or up with the
// chance of its fraction.
func (s Sample) Whole(thousandths int64, hash uint64) int64 {
	return (thousandths + int64(Mix(hash^Mix(s.Salt))%1000)) / 1000
}

// Request is a Need and whom it is for; Host is empty if it is for a sample.
type Request struct {
	Host string
	Need
}

const maxLoanBytes = 2 << 10

// ReadLoan reads a loan. That its host has issued the permits is not checked: the
// consumers of a provider trust each other with its limit.
func ReadLoan(value []byte) (l Loan, err error) {
	return l, readWindows("loan", value, maxLoanBytes, &l, &l.Windows)
}

// ReadNeed reads what a guest asks for. It may be anything: a host lends what it can spare.
func ReadNeed(value []byte) (n Need, err error) {
	err = readWindows("ask", value, maxLoanBytes, &n, &n.Windows)
	if err == nil && (n.Permits <= 0 || n.Poor < 0 || n.Poor > n.Permits || n.Critical < 0 || n.Critical > n.Permits || n.Edge < 0 || n.Edge > n.Permits || n.Permits > 2000*quota.MaxPermits) {
		err = fmt.Errorf("ask: %d thousandths of permits, %d of them poor, %d critical, %d at the edge", n.Permits, n.Poor, n.Critical, n.Edge)
	}
	return n, err
}

func readWindows(what string, value []byte, most int, into any, windows *[]quota.Window) error {
	if len(value) > most {
		return fmt.Errorf("%s: %d bytes are more than the most, %d", what, len(value), most)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var errs problems
	errs.add(len(*windows) == 0, "%s: it names no window", what)
	for _, w := range *windows {
		errs.add(w.Length < quota.MinWindow || w.Length > quota.MaxWindow, "%s: a window of %v; it must be of %v to %v", what, w.Length, quota.MinWindow, quota.MaxWindow)
	}
	return errors.Join(errs...)
}
