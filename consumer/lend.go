package consumer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what a core tells and hears about loans: docs/proof/protocol.md, section 13.

// Carry implements feed.Sink.
func (k *core) Carry(c feed.Carrier) {
	if c != nil {
		k.carrier.Store(&c)
	}
	k.mu.Lock()
	k.mu.planner.Lends = c != nil
	k.news(false)
}

// begun waits for the beginning of windows that have not begun here, since another clock is
// ahead, and then calls f. It returns false if it need not wait.
func (k *core) begun(windows []quota.Window, f func()) (waits bool) {
	early := windows[0].Start() - k.clock.Wall()
	if early <= 0 || early >= int64(windows[0].Length) {
		return false
	}
	time.AfterFunc(max(time.Duration(early), time.Millisecond), f) // corrected time may stand still
	return true
}

// Borrow implements feed.Sink.
func (k *core) Borrow(host string, loan protocol.Note) {
	if k.begun(loan.Windows, func() { k.Borrow(host, loan) }) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(loan.Permits)) {
		if name == "" {
			k.borrow(host, loan)
		} else {
			k.borrowKey(name, host, loan.Windows, loan.Permits[name])
		}
	}
}

// borrow adds what a host has lent of the provider.
func (k *core) borrow(host string, loan protocol.Note) {
	if k.gate.Borrow(k.clock.Now(), host, loan) == 0 {
		return
	}
	k.forgetRefusals()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.borrowed = loan.Windows[0].End() - k.clock.Offset()
	k.signalLocked()
}

// Asked implements feed.Sink.
func (k *core) Asked(guest string, ask protocol.Note) {
	if k.begun(ask.Windows, func() { k.Asked(guest, ask) }) {
		return
	}
	if ask.OfSample() {
		k.noise.heard(k.clock.Mono())
	}
	if need, asked := ask.Needs[""]; asked {
		k.gate.Asked(k.clock.Now(), guest, ask.Windows, need)
	}
	k.askedKeys(guest, ask)
}

// lendsTo reports whether this instance lends to another one, and from when that has a share.
func (k *core) lendsTo(guest string, at int64) (from int64, lends bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.planner.LendsTo(guest, at)
}

// lent tells a guest what this instance, which is self, has lent to it of the provider. The gate's lock is held.
func (k *core) lent(self, guest string, loan protocol.Note) {
	(*k.carrier.Load()).Tell(self, guest, loan)
}

// look asks others for what callers will lack, and looks again while they may lack some.
func (k *core) look() {
	now := k.clock.Now()
	ask, next := k.gate.Look(now)
	if ask != nil {
		k.askOthers(now.Mono, ask)
	}
	if next == clock.Forever {
		k.forgetRefusals() // the next one that is refused arms it again
		return
	}
	k.looker.Set(k.clock, next)
}

func (k *core) askOthers(now int64, a *window.Asking) {
	k.mu.Lock()
	peers := k.mu.planner.Peers(now, a.Debtors)
	k.mu.Unlock()
	a.Quiet = k.noise.tooMuch(now, a.Rules)
	var all []protocol.Request
	for _, r := range a.Requests(peers) {
		all = append(all, protocol.Request{Host: r.Host, Note: protocol.Note{Windows: a.Windows, Needs: map[string]protocol.Need{"": r.Need}}})
	}
	if len(all) > 0 {
		k.sendAsks(a.Self, now, all)
	}
}

// sendAsks asks others, in the name of self, which is this instance. It is called at the monotonic instant now.
func (k *core) sendAsks(self string, now int64, all []protocol.Request) {
	if slices.ContainsFunc(all, func(r protocol.Request) bool { return r.Host == "" }) {
		k.noise.heard(now)
	}
	(*k.carrier.Load()).Ask(self, all)
}

// noise is how often samples were asked lately, by all instances, for the provider and for its keys. Instants
// are monotonic ones.
type noise struct {
	mu sync.Mutex
	lending.Noise
}

func (n *noise) heard(now int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Heard(float64(now) / float64(time.Millisecond))
}

func (n *noise) tooMuch(now int64, r lending.Rules) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.TooMuch(float64(now)/float64(time.Millisecond), r)
}
