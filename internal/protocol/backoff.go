package protocol

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

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

// Backoff is the newest ask of each instance. It is no part of a view: no share
// depends on it, and it only holds back. So it does no harm whoever writes it, late,
// twice, or by mistake.
type Backoff struct {
	Schema schema `json:"schema"`
	Asks   []Ask  `json:"asks"`
}

// Bounds of a back-off.
const (
	maxAsks         = 8
	MaxBackoffBytes = 20 << 10 // all asks, with every character escaped
	maxWhyBytes     = 128
	maxByBytes      = 256
	// askedTogether is how far asks of one quorum may be apart.
	askedTogether = 2 * time.Second
	// minAdded is by how much an ask must extend a back-off to be worth writing.
	minAdded = 250 * time.Millisecond
)

// MaxBackoff returns the longest pause that a provider can ask for; policy may be nil.
func MaxBackoff(p *quota.Policy) time.Duration {
	if p == nil {
		p = &quota.Policy{}
	}
	return p.WithDefaults().BackoffMax
}

// Quorum returns how many of n instances must have been asked for a pause.
func Quorum(p *quota.Policy, n int) int {
	quorum := cmp.Or(int(p.BackoffQuorum), 2)
	if p.BackoffQuorum == 0 && n <= 3 {
		quorum = 1
	}
	return max(1, min(quorum, n))
}

// Binding returns the ask until whose end all instances are held back: the longest
// that counts alone, or that a quorum reaches, each within 2 s of it.
func (b *Backoff) Binding(quorum int) (binding Ask, ok bool) {
	for _, a := range b.Asks {
		reached := 0
		for _, o := range b.Asks {
			if o.At.Sub(a.At).Abs() <= askedTogether && !o.Until.Before(a.Until) {
				reached++
			}
		}
		if (a.Alone || reached >= quorum) && (!ok || a.Until.After(binding.Until)) {
			binding, ok = a, true
		}
	}
	return binding, ok
}

// Adds reports whether a is worth writing at the instant now.
func (b *Backoff) Adds(a Ask, quorum int, now time.Time) bool {
	binding, _ := b.Binding(quorum)
	known := slices.DeleteFunc(slices.Clone(b.Asks), func(o Ask) bool { return o.By != a.By || a.Alone && !o.Alone })
	known = append(known, binding, Ask{Until: now})
	return !slices.ContainsFunc(known, func(o Ask) bool { return a.Until.Before(o.Until.Add(minAdded)) })
}

// With returns the back-off with an ask more, in place of the same instance's last one.
// The oldest makes room.
func (b *Backoff) With(a Ask) Backoff {
	asks := slices.DeleteFunc(slices.Clone(b.Asks), func(o Ask) bool { return o.By == a.By })
	a.At, a.Until, a.Why = a.At.UTC(), a.Until.UTC(), strings.ToValidUTF8(a.Why[:min(len(a.Why), maxWhyBytes)], "?")
	asks = append(asks, a)
	slices.SortStableFunc(asks, func(x, y Ask) int { return x.At.Compare(y.At) })
	return Backoff{Asks: asks[max(0, len(asks)-maxAsks):]}
}

// ReadBackoff reads and validates a back-off. Fields that it does not know are
// ignored, a schema that it does not know is refused.
func ReadBackoff(value []byte) (b Backoff, err error) {
	if err := Decode("back-off", value, MaxBackoffBytes, &b); err != nil {
		return b, err
	}
	var errs problems
	errs.add(len(b.Asks) > maxAsks, "back-off: %d asks are more than the most, %d", len(b.Asks), maxAsks)
	for i, a := range b.Asks[:min(len(b.Asks), maxAsks)] {
		twice := slices.ContainsFunc(b.Asks[:i], func(o Ask) bool { return o.By == a.By })
		errs.add(a.By == "" || len(a.By) > maxByBytes || twice, "back-off: asks[%d].by: must be an instance, each once", i)
		errs.add(!dated(a.At) || !dated(a.Until), "back-off: asks[%d]: must lie in the years 1970 to 2199", i)
		errs.add(len(a.Why) > maxWhyBytes, "back-off: asks[%d].why: %d bytes are more than the most, %d", i, len(a.Why), maxWhyBytes)
	}
	if len(errs) > 0 {
		return Backoff{}, errors.Join(errs...)
	}
	return b, nil
}
