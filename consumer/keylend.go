package consumer

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/alarm"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what a core asks, lends and borrows of keys: docs/proof/protocol.md, section 15. A host is an
// instance that lends permits, a guest one that asks for some or borrows them. The counts are in window.Account,
// which allows each permit: a mistake here cannot make the fleet exceed a limit.

// keyRound is how long after a round of asks the next one comes, if an ask had no room for all keys.
const keyRound = 20 * time.Millisecond

// keyAsks are the keys to be looked at, and by when. A look at a key serves its line if a claim has ended there, has etcd
// asked anew for what is reserved and has lapsed, decides whether to ask other instances for permits, lends for other
// instances' asks that are not met in full yet, and serves the key's own waiters if no next look is due.
type keyAsks struct {
	alarm alarm.Alarm // calls lookAll when it rings

	mu  sync.Mutex
	due map[*keyState]int64 // the monotonic instant by which to look at the key
}

// schedule has a key looked at no later than at (monotonic).
func (a *keyAsks) schedule(k *core, y *keyState, at int64) {
	a.mu.Lock()
	if was, there := a.due[y]; there {
		at = min(at, was)
	}
	if a.due == nil {
		a.due = map[*keyState]int64{}
	}
	a.due[y] = at
	a.mu.Unlock()
	a.alarm.Set(k.clock, at)
}

// dueKey is a key that is looked at in this round.
type dueKey struct {
	*keyState
	at int64 // the monotonic instant at which it was due
}

// take removes the keys that are due at the monotonic instant now, and returns them, the longest due first. next is
// when the next one is due, clock.Forever if there is none.
func (a *keyAsks) take(now int64) (all []dueKey, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next = clock.Forever
	for y, at := range a.due {
		if at > now {
			next = min(next, at)
			continue
		}
		all = append(all, dueKey{y, at})
		delete(a.due, y)
	}
	slices.SortFunc(all, func(x, y dueKey) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.key.Name, y.key.Name)) })
	return all, next
}

// putBack returns a key that was taken to those that are due. It keeps its instant, so that it comes first in the
// next round, unless it was scheduled again meanwhile. putBack sets no alarm.
func (a *keyAsks) putBack(y dueKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.due[y.keyState]; !there {
		a.due[y.keyState] = y.at
	}
}

// callers counts the permits that waiters in the key's line want, by class and size. y.mu is held.
func (y *keyState) callers() window.Callers {
	return window.CallersOf(y.line)
}

// fleet returns the key's limit in its shortest window that runs, how many instances there are, and how many of them
// own a part of the key: their share of its limit is not 0. y.mu is held.
func (y *keyState) fleet(k *core) plans.Fleet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.planner.KeyFleet(y.key, y.use.Shortest(), y.use.Windows().Lending.Instances)
}

// totals returns what tells the key's limit for a window, by which all instances together are bounded; 0
// if nobody knows.
func (y *keyState) totals(k *core) func(quota.Window) int64 {
	return func(w quota.Window) int64 {
		k.mu.Lock()
		defer k.mu.Unlock()
		total, _ := k.mu.planner.KeyTotal(y.key, w)
		return total
	}
}

// borrows reports whether others may be asked for permits of the key. y.mu is held.
func (y *keyState) borrows() bool {
	w := y.use.Windows()
	return w != nil && w.Lending.Borrows
}

// scheduleLook has the key looked at soon, if others may be asked. y.mu is held.
func (y *keyState) scheduleLook(k *core, now int64) {
	if !y.borrows() {
		return
	}
	if at, sooner := y.use.LookSoon(now); sooner {
		k.keys.asks.schedule(k, y, at)
	}
}

// noteLack notes that a call of class c lacks want permits of a key, at least 1. Of these, refused were refused to it;
// 0 if it waits. large says that they were refused to a large call. It has etcd asked if a long limit
// (internal/window/long.go) has too few in hand: taken from etcd, and not issued yet. If loans of other instances would
// help, it notes what was refused, and has these asked.
//
// Loans do not help if too little is left in etcd of a long limit; a limit in flight does not count here, since its
// permits come back when calls end. Nor do they help if only a long limit lacks permits: each instance takes those
// from etcd, and no other one lends them. y.mu is held.
func (y *keyState) noteLack(k *core, refused int64, c queue.Class, large bool, want, now int64) {
	y.wants(k, want, now)
	if spentUntil, fetches := y.use.Fetches(want, y.line.Permits()); !y.borrows() || spentUntil != 0 || fetches {
		return
	}
	y.use.Refused(refused, c, large)
	y.scheduleLook(k, now)
}

// earliest returns the monotonic instant before which neither loans nor etcd can bring n permits of a key: now if
// only those of a long limit lack, which etcd may give at once, and clock.Forever if neither helps. It leaves out
// what this instance's own share of a later window brings. y.mu is held.
func (y *keyState) earliest(k *core, n, now int64) int64 {
	switch spentUntil, fetches := y.use.Fetches(n, y.line.Permits()); {
	case fetches:
		return now
	case !y.borrows():
		return clock.Forever
	case spentUntil != 0:
		now = max(now, y.use.Windows().OpensAfter(spentUntil))
	}
	return y.use.Eta(n, now, func(w quota.Window) (total, later int64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		total, limited := k.mu.planner.KeyTotal(y.key, w)
		if !limited { // the key's total in this window is not known
			total = shape.Unbounded
		}
		return total, total
	})
}

// opens returns the earliest monotonic instant at which this instance's own share may bring n permits of a key:
// window.Account.Opens. y.mu is held.
func (y *keyState) opens(k *core, n, now int64) int64 {
	return y.use.Opens(n, now, func() (wall int64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.mu.planner.Blocked(y.key, now+k.clock.Offset()) {
			return clock.Forever
		}
		wall, _ = k.mu.planner.BeginsOf(y.key)
		return wall
	})
}

// when returns the monotonic instant at which a call for n permits of a key is worth trying again, as window.Gate.Estimate
// does for the provider; clock.Forever, and known is false, if only news brings some. y.mu is held.
func (y *keyState) when(k *core, keys *plans.Keys, n, now int64) (at int64, known bool) {
	_, elsewhere := y.ownerIn(k, keys, now)
	if at = clock.Forever; !elsewhere {
		at = y.opens(k, n, now)
	}
	if y.borrows() && (elsewhere || y.fleet(k).Owners > 1) { // another instance has permits of the key
		at = y.use.Retry(n, at, y.earliest(k, n, now))
	}
	return at, at != clock.Forever
}

// owes schedules a look if the key has a debt: others are asked for permits to pay it. y.mu is held.
func (y *keyState) owes(k *core, now int64) {
	if y.use.Debt() > 0 {
		y.scheduleLook(k, now)
	}
}

// afterIssue looks ahead after n permits of the key were issued to a call: it has etcd asked if few permits of a long limit
// are left in hand, and other instances if callers will soon lack permits. y.mu is held.
func (y *keyState) afterIssue(k *core, n, now int64) {
	if y.use.Had(n, now) {
		k.keys.funds.want(k, y, false)
	}
	if y.use.Low() {
		y.scheduleLook(k, now)
	}
}

// lookAll looks at the keys that are due: see keyAsks. It sends what it asks for them in one ask for each host, and
// sets the alarm for the next look.
func (a *keyAsks) lookAll(k *core) {
	now := k.clock.Mono()
	all, next := a.take(now)
	s, _ := k.segmentNow()
	r := keyRequests{}
	for _, y := range all {
		k.keys.lines.serveDue(k, y.keyState, now)
		k.renew(y.keyState, s, now)
		switch at, full := k.ask(y.keyState, s, now, r); {
		case full:
			a.putBack(y)
			next = min(next, now+int64(keyRound))
		case at < clock.Forever:
			a.schedule(k, y.keyState, at)
		default: // no next look is due: waiters that cannot be served are refused now
			k.keys.lines.serve(k, y.keyState)
		}
	}
	if all := r.all(); len(all) > 0 {
		k.sendAsks(s.Keys.Lending.Self, now, all)
	}
	if next < clock.Forever {
		a.alarm.Set(k.clock, next)
	}
}

// keyRequests are the asks of one round, by the host that is asked. The one under "" asks a random sample of all
// instances.
type keyRequests map[string]*keyRequest

// keyRequest is an ask for keys.
type keyRequest struct {
	protocol.Note
	size int // in bytes, by protocol.NeedBytes
}

// room reports whether each host's ask has room for one more key, whatever is asked for it.
func (r keyRequests) room(name string) bool {
	largest := 0
	for _, q := range r {
		largest = max(largest, q.size)
	}
	return largest == 0 || largest+protocol.MostNeedBytes(name) <= protocol.MostAsked
}

// add adds, for each host, what is asked of it for this key, in the windows that run.
func (r keyRequests) add(all []lending.Request, windows []quota.Window, name string) {
	for _, q := range all {
		if r[q.Host] == nil {
			r[q.Host] = &keyRequest{Note: protocol.Note{Windows: windows, Needs: map[string]protocol.Need{}}}
		}
		r[q.Host].Needs[name] = q.Need
		r[q.Host].size += protocol.NeedBytes(name, q.Need)
	}
}

// all returns the asks, by host.
func (r keyRequests) all() (all []protocol.Request) {
	for _, host := range slices.Sorted(maps.Keys(r)) { // in the same order each time
		all = append(all, protocol.Request{Host: host, Note: r[host].Note})
	}
	return all
}

// ask looks at a key: it lends for guests' asks that are not met in full yet, and adds to r what this instance needs
// of others. It returns when to look at the key again. clock.Forever: no look is due until callers lack permits; nor
// then if keys are not limited, or the state is gone. full says that r had no room for the key: it is to be put back,
// for the next round.
func (k *core) ask(y *keyState, s *window.Segment, now int64, r keyRequests) (again int64, full bool) {
	y.hold(&k.keys)
	defer y.mu.Unlock()
	again = clock.Forever
	if keys := s.Keys; keys != nil && !y.gone {
		y.adopt(k, s, now)
		if s.Open(now) {
			y.lendAtEdge(k, s, now) // before it asks others for what it lacks then
		}
		next := y.serveAsked(k, s, now)
		if y.borrows() {
			again, full = k.askIn(y, keys, now, r)
			if y.use.Debt() > 0 { // a debt is looked at in each window
				again = min(again, keys.Opens(now))
			}
		}
		again = min(again, next, y.use.Again())
	}
	if full {
		again = now + int64(keyRound)
	}
	y.use.Looked(now, again)
	return again, full
}

// askIn is the part of ask that borrows. y.mu is held.
func (k *core) askIn(y *keyState, keys *plans.Keys, now int64, r keyRequests) (again int64, full bool) {
	if keys.Shut { // nobody lends now
		return keys.Opens(now), false
	}
	if !r.room(y.key.Name) {
		return 0, true
	}
	a, again := y.use.Ask(y.fleet(k), y.callers(), now)
	if a == nil {
		return again, false
	}
	k.mu.Lock()
	peers := k.mu.planner.KeyPeers(y.key, now, a.Debtors)
	k.mu.Unlock()
	a.Quiet = k.noise.tooMuch(now, a.Rules)
	r.add(a.Requests(peers), a.Windows, y.key.Name)
	k.keys.asked.Add(1)
	return again, false
}

// askedKeys lends permits of the keys that a guest asks for, and tells it the sum lent to it of each key in these
// windows.
func (k *core) askedKeys(guest string, ask protocol.Note) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(ask.Needs)), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return
	}
	from, lends := k.lendsTo(guest, k.clock.Mono())
	if !lends {
		return
	}
	loan := protocol.Note{Windows: ask.Windows, Permits: map[string]int64{}}
	self := "" // this instance's ID, by which the loans count
	for _, name := range names {
		s, told := k.lendKey(guest, name, ask.Windows, ask.Needs[name], from)
		if told > 0 {
			if self != "" && self != s.Keys.Lending.Self {
				return // this instance has registered anew: its earlier loans are lost
			}
			self, loan.Permits[name] = s.Keys.Lending.Self, told
		}
	}
	if len(loan.Permits) > 0 {
		(*k.carrier.Load()).Tell(self, guest, loan)
	}
}

// lendKey lends to a guest what it needs of a key, as far as the rules say, if these windows are the ones that run.
// from is the corrected wall time from which the guest has a share. told is what to tell the guest: the sum of all
// that this instance has lent it of the key in these windows, or 0 if nothing was lent now. s is the segment during
// which that was issued.
func (k *core) lendKey(guest, name string, windows []quota.Window, need protocol.Need, from int64) (s *window.Segment, told int64) {
	for {
		s, now := k.segmentNow()
		if !s.KeysLend || !slices.Equal(s.Keys.Running, windows) {
			return s, 0
		}
		hash := s.Keys.Lending.Hash ^ share.KeyOf(name).Hash
		if need.Part > 0 && !need.Has(hash) { // the ask went to a sample that this instance is not in
			return s, 0
		}
		y, _ := k.keys.find(name, nil, s.Keys, true)
		if y == nil {
			return s, 0
		}
		y.hold(&k.keys)
		if !y.gone {
			y.adopt(k, s, now)
			if s.Open(now) { // not over and not sealed: its bounds are in force
				y.lendAtEdge(k, s, now)
				left, fleet := y.use.LeftToBorrowers(), y.fleet(k)
				if fleet.Owners < fleet.Instances {
					// Some instances own no part of the key, and get none by waiting. So no guest counts
					// as one that will have a share of its own: only edgeWindows ends what it is lent at
					// edges without another ask (askOf).
					from = clock.Forever
				}
				told, next := y.use.Lend(guest, need, fleet, y.callers(), hash, from, now)
				k.keys.lent.Add(left - y.use.LeftToBorrowers())
				y.mu.Unlock()
				if next < clock.Forever {
					k.keys.asks.schedule(k, y, next)
				}
				return s, told
			}
		}
		y.mu.Unlock()
	}
}

// lendAtEdge lends to guests if a window has just begun, before waiters take all of it. The segment is
// Open, so its bounds are in force. y.mu is held.
func (y *keyState) lendAtEdge(k *core, s *window.Segment, now int64) {
	if !y.use.AtEdge() || !s.KeysLend {
		return
	}
	y.lend(k, s, now, y.use.LendAtEdge)
}

// serveAsked lends to guests whose asks are open: what they ask for was not all lent yet. It does that late in the
// window, when hosts release the reserves that they have kept until then. It returns when to look again,
// clock.Forever if not in this window. y.mu is held.
func (y *keyState) serveAsked(k *core, s *window.Segment, now int64) (next int64) {
	switch {
	case !s.KeysLend || !y.use.AsksOpen():
		return clock.Forever
	case !s.Open(now): // over or sealed: its bounds may not be in force
		return now
	}
	y.lend(k, s, now, func(f plans.Fleet, c window.Callers, hash uint64, now int64, lends func(string) bool, tell func(string, int64)) {
		next = y.use.ServeAsked(f, c, hash, now, lends, tell)
	})
	return next
}

// lend has the account lend to guests without a new ask, and tells each guest the sum that was lent to it in these
// windows. by is the method that lends: LendAtEdge or ServeAsked. y.mu is held.
func (y *keyState) lend(k *core, s *window.Segment, now int64, by func(f plans.Fleet, c window.Callers, hash uint64, now int64, lends func(guest string) bool, tell func(guest string, told int64))) {
	left, l := y.use.LeftToBorrowers(), &s.Keys.Lending
	lends := func(guest string) bool {
		_, lends := k.lendsTo(guest, now)
		return lends
	}
	by(y.fleet(k), y.callers(), l.Hash^y.key.Hash, now, lends, func(guest string, told int64) {
		(*k.carrier.Load()).Tell(l.Self, guest, protocol.Note{Windows: s.Keys.Running, Permits: map[string]int64{y.key.Name: told}})
	})
	k.keys.lent.Add(left - y.use.LeftToBorrowers())
}

// borrowKey adds what a host has lent of a key, and serves those who wait for it. told is the sum that the host has
// lent so far in these windows: only what it exceeds the earlier sums by is added.
func (k *core) borrowKey(name, host string, windows []quota.Window, told int64) {
	if k.gate.Segment().Keys == nil {
		return
	}
	y, s, now := k.keys.lock(k, name)
	if y == nil {
		return
	}
	n := int64(0)
	if s.Keys != nil && y.borrows() { // else nothing is borrowed now
		n = y.use.Borrow(host, windows, told, y.totals(k))
		y.pay(k, s, now)
	}
	if n <= 0 {
		y.mu.Unlock()
		return
	}
	k.keys.got.Add(n)
	k.keys.lines.brought(k, y)
}
