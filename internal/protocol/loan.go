package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
	Windows []quota.Window `json:"-"`
	// Permits are asked for, and Poor are those of them that the guest lacks to its fair
	// share; in thousandths.
	Permits int64 `json:"permits"`
	Poor    int64 `json:"poor,omitempty"`
	// Sample says which hosts are asked, if not one.
	Sample
}

// Sample names a part of all hosts without a list of them.
type Sample struct {
	Salt uint64 `json:"salt,omitempty"`
	Part uint64 `json:"part,omitempty"` // of 2^32; 0 if one host is asked
}

// Rank orders the hosts with these hashes by chance: a sample is those of the lowest ranks.
func (s Sample) Rank(hash uint64) uint64 { return mix(hash ^ s.Salt) }

// Has reports whether the host with this hash is in the sample.
func (s Sample) Has(hash uint64) bool { return s.Rank(hash)>>32 < s.Part }

// Whole rounds an amount of thousandths for the host with this hash: down, or up with the
// chance of its fraction.
func (s Sample) Whole(thousandths int64, hash uint64) int64 {
	return (thousandths + int64(mix(hash^mix(s.Salt))%1000)) / 1000
}

// mix is the step and the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// Request is a Need and whom it is for; Host is empty if it is for a sample.
type Request struct {
	Host string `json:"host,omitempty"`
	Need
}

// Asks is what a guest asks others for at one time.
type Asks struct {
	Windows  []quota.Window `json:"windows"` // of each Need
	Requests []Request      `json:"requests"`
}

// Of returns what a host is asked for: by its name, or else if it is in a sample.
func (a Asks) Of(host string) (all []Need) {
	for _, r := range a.Requests {
		if r.Windows = a.Windows; r.Host == host {
			return []Need{r.Need}
		} else if r.Host == "" {
			all = append(all, r.Need)
		}
	}
	return all
}

// With returns what a and later asks of the same guest ask for together, if their windows
// are the same; else the later asks.
func (a Asks) With(later Asks) Asks {
	if !slices.Equal(a.Windows, later.Windows) {
		return later
	}
	named := map[string]bool{}
	for _, r := range later.Requests {
		named[r.Host] = r.Host != ""
	}
	all := slices.Clone(later.Requests)
	for _, r := range a.Requests {
		if !named[r.Host] && len(all) < maxRequests {
			all = append(all, r)
		}
	}
	return Asks{later.Windows, all}
}

const (
	maxLoanBytes = 8 << 10
	maxRequests  = 24
)

// ReadLoan reads a loan. That its host has issued the permits is not checked: the
// consumers of a provider trust each other with its limit.
func ReadLoan(value []byte) (l Loan, err error) {
	return l, readLoan("loan", value, &l, &l.Windows)
}

// ReadAsks reads what a guest asks for. It may be anything: a host lends what it can spare.
func ReadAsks(value []byte) (a Asks, err error) {
	if err := readLoan("ask", value, &a, &a.Windows); err != nil {
		return a, err
	}
	if len(a.Requests) == 0 || len(a.Requests) > maxRequests {
		return a, fmt.Errorf("ask: %d requests; there may be 1 to %d", len(a.Requests), maxRequests)
	}
	for _, n := range a.Requests {
		if n.Permits <= 0 || n.Poor < 0 || n.Poor > n.Permits || n.Permits > 2000*quota.MaxPermits {
			return a, fmt.Errorf("ask: %d thousandths of permits, %d of them poor", n.Permits, n.Poor)
		}
	}
	return a, nil
}

func readLoan(what string, value []byte, into any, windows *[]quota.Window) error {
	if len(value) > maxLoanBytes {
		return fmt.Errorf("%s: %d bytes are more than the most, %d", what, len(value), maxLoanBytes)
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
