package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// recorder is a sink that remembers what it was told.
type recorder struct {
	mu      sync.Mutex
	log     []string
	totals  []int64             // of the first limit of every policy that a change brought
	ends    []protocol.Instance // announced by a change
	debt    int64               // it reports
	self    string
	view    protocol.View
	proofs  int
	proof   clock.Instant
	trouble error
	until   int64
	closed  bool

	asks chan protocol.Ask // nil: it never asks

	carrier  feed.Carrier // as given by Carry
	borrowed []loaned
	asked    []wanted

	keyAsked, keyBorrowed []ofKeys

	uses []escrow.KeyUse // are handed out once
}

// loaned is what a host has lent.
type loaned struct {
	host    string
	permits int64
}

// wanted is what a guest has asked for, in thousandths.
type wanted struct {
	guest   string
	permits int64
}

func (r *recorder) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) Reset(_ clock.Instant, self string, v protocol.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self, r.view, r.proofs = self, v, 0
	r.note("reset %d", len(v.Instances))
}

func (r *recorder) Apply(_ clock.Instant, c protocol.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Revision <= r.view.Revision {
		r.note("revision %d after %d", c.Revision, r.view.Revision)
	}
	r.view.Revision = c.Revision
	if c.Policy != nil || c.PolicyDeleted {
		r.view.Policy = c.Policy
		r.note("policy")
	}
	if c.Throttle != nil || c.ThrottleDeleted {
		r.view.Throttle = c.Throttle
	}
	for bucket, o := range c.Overrides {
		r.view.Overrides = maps.Clone(r.view.Overrides)
		if r.view.Overrides == nil {
			r.view.Overrides = map[int]*protocol.Overrides{}
		}
		r.view.Overrides[bucket] = o
	}
	if c.Policy != nil {
		r.totals = append(r.totals, c.Policy.Limits[0].Permits)
	}
	for _, i := range c.Put {
		r.view.Instances = slices.DeleteFunc(r.view.Instances, func(o protocol.Instance) bool { return o.ID == i.ID })
		r.view.Instances = append(r.view.Instances, i)
		if r.note("put"); !i.Until.IsZero() {
			r.ends = append(r.ends, i)
		}
	}
	for _, id := range c.Deleted {
		r.view.Instances = slices.DeleteFunc(r.view.Instances, func(o protocol.Instance) bool { return o.ID == id })
		r.note("deleted")
	}
}

func (r *recorder) Prove(sent clock.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proofs++
	r.proof = sent
}

func (r *recorder) Announce(until int64) { r.mu.Lock(); defer r.mu.Unlock(); r.until = until }
func (r *recorder) Trouble(err error)    { r.mu.Lock(); defer r.mu.Unlock(); r.trouble = err }
func (r *recorder) Close()               { r.mu.Lock(); defer r.mu.Unlock(); r.closed = true }

func (r *recorder) Carry(c feed.Carrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.carrier = c; c == nil {
		r.note("mute")
	}
}

func (r *recorder) Asked(guest string, n protocol.Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	permits := map[string]int64{}
	for name, need := range n.Needs {
		if permits[name] = need.Permits; name == "" {
			r.asked = append(r.asked, wanted{guest, need.Permits})
		}
	}
	if permits = withoutProvider(permits); len(permits) > 0 {
		r.keyAsked = append(r.keyAsked, ofKeys{guest, permits})
	}
}

func (r *recorder) Borrow(host string, n protocol.Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if permits := n.Permits[""]; permits > 0 {
		r.borrowed = append(r.borrowed, loaned{host, permits})
	}
	if lent := withoutProvider(n.Permits); len(lent) > 0 {
		r.keyBorrowed = append(r.keyBorrowed, ofKeys{host, lent})
	}
}

func withoutProvider(permits map[string]int64) map[string]int64 {
	permits = maps.Clone(permits)
	delete(permits, "")
	return permits
}

// ofKeys is what another instance has lent of keys, or asked for in thousandths.
type ofKeys struct {
	who     string
	permits map[string]int64
}

// pause is that of the newest view.
func (r *recorder) pause() protocol.Ask {
	known := func(id string) bool {
		return slices.ContainsFunc(r.view.Instances, func(i protocol.Instance) bool { return i.ID == id })
	}
	return r.view.Throttle.Pause(r.view.Policy, len(r.view.Instances), known, time.Now())
}

// heldBack returns for how long it is held back, and why.
func (r *recorder) heldBack() (left time.Duration, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.pause()
	return time.Until(a.Until), a.Why
}

func (r *recorder) Wanting() <-chan struct{} { return nil }
func (r *recorder) Needs(need func())        { need() }

func (r *recorder) Restored() {}

func (r *recorder) Heard(string, escrow.Total, int64) {}

func (r *recorder) Uses(int) (all []escrow.KeyUse, look time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.uses = r.uses, nil
	return all, 0
}

func (r *recorder) Fund([]escrow.KeyUse) {}

func (r *recorder) Pushed() <-chan protocol.Ask { return r.asks }

func (r *recorder) Report(clock.Instant) protocol.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := protocol.Report{Schema: 1, State: quota.StateActive, Revision: r.view.Revision, Debt: r.debt}
	if r.closed {
		report.State = quota.StateClosed
	}
	return report
}

// record is what a recorder was told up to now.
type record struct {
	log    string
	totals []int64
	ends   []protocol.Instance
	self   string
	proof  int64
	proofs int
	until  int64
	closed bool
}

func (r *recorder) told() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return record{strings.Join(r.log, ","), slices.Clone(r.totals), slices.Clone(r.ends), r.self, r.proof.Mono, r.proofs, r.until, r.closed}
}

// is reports a condition on the recorder under its lock.
func (r *recorder) is(f func(r *recorder) bool) func() bool {
	return func() bool { r.mu.Lock(); defer r.mu.Unlock(); return f(r) }
}

func proved(r *recorder) bool { return r.proofs > 0 }

func members(n int) func(*recorder) bool {
	return func(r *recorder) bool { return len(r.view.Instances) == n }
}
