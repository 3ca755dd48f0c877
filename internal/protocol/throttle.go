package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Throttle has the pauses that the provider asked instances for, in one key. They only hold
// back: nothing is issued until their end (Pause). So a value that is old, wrong or forged
// exceeds nothing.
type Throttle struct {
	Schema schema `json:"schema"`
	// Asks are the newest of each instance.
	Asks []Ask `json:"asks,omitempty"`
}

// Ask is one instance's word that the provider asked for a pause.
type Ask struct {
	By    string    `json:"by"` // incarnation
	At    time.Time `json:"at"` // when, by its clock
	Until time.Time `json:"until"`
	Why   string    `json:"why,omitempty"`
	// Alone says that the provider refuses more than a tenth of this instance's
	// calls: the ask counts without another one.
	Alone bool `json:"alone,omitempty"`
}

// Bounds of a throttle.
const (
	MaxThrottleBytes = 28 << 10 // with every character of all asks escaped
	maxAsks          = 8
	maxWhyBytes      = 128
	maxByBytes       = 256
	// askedTogether is how far asks of one quorum may be apart.
	askedTogether = 2 * time.Second
	// minAdded is by how much an ask must extend a pause to be worth writing.
	minAdded = 250 * time.Millisecond
)

// MaxBackoff returns the longest pause that a provider can ask for; policy may be nil.
func MaxBackoff(p *quota.Policy) time.Duration {
	if p == nil {
		p = &quota.Policy{}
	}
	return p.WithDefaults().BackoffMax
}

// Quorum returns how many of n instances must have been asked for a pause. A single 429 may be a
// stray one in a large fleet.
func Quorum(n int) int {
	if n <= 3 {
		return 1
	}
	return 2
}

// Pause returns until when all instances issue nothing, by what as many of them say as its
// Why tells; zero if they do not pause. It is the longest ask that counts alone, or that a
// quorum of the n instances reaches, each within 2 s of it. An ask counts for the policy's
// BackoffMax since it was made. It does not count if it is by a stranger, or made later than
// any clock says.
func (t *Throttle) Pause(policy *quota.Policy, n int, known func(id string) bool, now time.Time) (longest Ask) {
	if t == nil || policy == nil || policy.Backoff != quota.BackoffFleet {
		return longest
	}
	p := policy.WithDefaults()
	var asks []Ask
	for _, a := range t.Asks {
		if latest := a.At.Add(p.BackoffMax); a.Until.After(latest) {
			a.Until = latest
		}
		if known(a.By) && !a.At.After(now.Add(2*p.ClockError)) && a.Until.After(now) {
			asks = append(asks, a)
		}
	}
	for _, a := range asks {
		reached := 0
		for _, o := range asks {
			if o.At.Sub(a.At).Abs() <= askedTogether && !o.Until.Before(a.Until) {
				reached++
			}
		}
		if (a.Alone || reached >= Quorum(n)) && a.Until.After(longest.Until) {
			longest = a
			longest.Why = fmt.Sprintf("%s: %s (said by %d of %d instances)", a.By, a.Why, reached, n)
		}
	}
	return longest
}

// Adds reports whether a is worth writing at the instant now, beside a pause.
func (t *Throttle) Adds(a, pause Ask, now time.Time) bool {
	known := []Ask{pause, {Until: now}}
	for _, o := range t.Asks {
		if o.By == a.By && (o.Alone || !a.Alone) {
			known = append(known, o)
		}
	}
	return !slices.ContainsFunc(known, func(o Ask) bool { return a.Until.Before(o.Until.Add(minAdded)) })
}

// With returns the throttle with an ask more, in place of the same instance's last one.
// Those of strangers and the oldest make room.
func (t Throttle) With(a Ask, known func(id string) bool) Throttle {
	asks := slices.DeleteFunc(slices.Clone(t.Asks), func(o Ask) bool { return o.By == a.By || !known(o.By) })
	a.At, a.Until, a.Why = a.At.UTC(), a.Until.UTC(), strings.ToValidUTF8(a.Why[:min(len(a.Why), maxWhyBytes)], "?")
	asks = append(asks, a)
	slices.SortStableFunc(asks, func(x, y Ask) int { return x.At.Compare(y.At) })
	t.Asks = asks[max(0, len(asks)-maxAsks):]
	return t
}

// ReadThrottle reads and validates a throttle. Fields that it does not know are ignored, a
// schema that it does not know is refused.
func ReadThrottle(value []byte) (*Throttle, error) {
	t := new(Throttle)
	if err := Decode("throttle", value, MaxThrottleBytes, t); err != nil {
		return nil, err
	}
	var errs problems
	errs.add(len(t.Asks) > maxAsks, "throttle: %d asks are more than the most, %d", len(t.Asks), maxAsks)
	for i, a := range t.Asks[:min(len(t.Asks), maxAsks)] {
		twice := slices.ContainsFunc(t.Asks[:i], func(o Ask) bool { return o.By == a.By })
		errs.add(a.By == "" || len(a.By) > maxByBytes || twice, "throttle: asks[%d].by: must be an instance, each once", i)
		errs.add(!dated(a.At) || !dated(a.Until), "throttle: asks[%d]: must lie in the years 1970 to 2199", i)
		errs.add(len(a.Why) > maxWhyBytes, "throttle: asks[%d].why: %d bytes are more than the most, %d", i, len(a.Why), maxWhyBytes)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}
