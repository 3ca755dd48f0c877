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

// This file is what a core asks, lends and borrows of keys: docs/proof/protocol.md, section 15.
// The counts are in window.Account. Nothing here decides whether the sum is exact.

// keyRound is the time between two rounds of asks, where one has no room for all keys.
const keyRound = 20 * time.Millisecond

// keyAsks are the keys for which others are asked, and when next.
type keyAsks struct {
	alarm alarm.Alarm

	mu  sync.Mutex
	due map[*keyState]int64 // monotonic
}

// at has a key looked at by the monotonic instant.
func (a *keyAsks) at(k *core, y *keyState, at int64) {
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

// dueKey is a key that is looked at, and since when it was due.
type dueKey struct {
	*keyState
	at int64 // monotonic
}

// take returns the keys that are due, longest due first, and when the next one is.
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

// putBack has a key that was taken looked at in the next round, with those that were due as long.
func (a *keyAsks) putBack(y dueKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.due[y.keyState]; !there {
		a.due[y.keyState] = y.at
	}
}

// callers are those that wait for the key. The caller has the state's lock.
func (y *keyState) callers() window.Callers {
	of := func(n int64) int64 { return min(n, quota.MaxPermits) } // sums of these do not overflow
	return window.Callers{
		Waiting: of(y.line.Permits()), Large: of(y.line.Large(queue.Sheddable)),
		Critical: of(y.line.PermitsOf(queue.Critical)), LargeCritical: of(y.line.Large(queue.Critical)), Sheddable: of(y.line.PermitsOf(queue.Sheddable)),
	}
}

// fleet is what all have of the key together. The caller has the state's lock.
func (y *keyState) fleet(k *core, windows *plans.Windows) plans.Fleet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.planner.KeyFleet(y.key, windows.Running[0], windows.Lending.Instances)
}

// asked reports whether others were asked for permits in the windows that run: what they lend
// would be lost with the state. The caller has the state's lock.
func (y *keyState) asked(keys *plans.Keys) bool { return y.use.Asked(keys.Running) }

// borrows reports whether others may be asked for permits of the key. The caller has the state's lock.
func (y *keyState) borrows() bool {
	w := y.use.Windows()
	return w != nil && w.Lending.Borrows
}

// looks has the key looked at soon, if others may be asked. The caller has the state's lock.
func (y *keyState) looks(k *core, now int64) {
	if !y.borrows() {
		return
	}
	if at, sooner := y.use.LookSoon(now); sooner {
		k.keys.asks.at(k, y, at)
	}
}

// lacks notes that n permits of a key were refused to calls of class c, 0 if none were, and that a caller waits
// for want permits, 0 if none does. It has etcd asked where a long limit has too few in hand, and other instances
// where their loans would help. The caller has the state's lock.
func (y *keyState) lacks(k *core, n int64, c queue.Class, want, now int64) {
	if y.use.Wants(want, now) {
		k.keys.funds.want(k, y, want > 0)
	}
	end, long := y.use.SpentUntil(max(1, want))
	if !y.borrows() || end != 0 || long && y.use.LeftToBorrowers() >= max(1, want) {
		return // what others lend is of no use
	}
	y.use.Refused(n, c)
	y.looks(k, now)
}

// earliest returns the monotonic instant before which neither loans nor etcd can bring n permits of a key; now
// if etcd may at once, and Forever if neither helps. It does not look at the own share of a later window. The
// caller has the state's lock.
func (y *keyState) earliest(k *core, n, now int64) int64 {
	switch end, long := y.use.SpentUntil(n); {
	case end != 0:
		return clock.Forever
	case long && y.use.LeftToBorrowers() >= n:
		return now
	case !y.borrows():
		return clock.Forever
	}
	of := y.totals(k)
	return y.use.Eta(n, now, func(w quota.Window) (total, later int64) {
		if total = of(w); total == 0 { // nobody knows until when
			total = shape.Unbounded
		}
		return total, total
	})
}

// owes has others asked for a debt, when the account says that it is time. The caller has the state's lock.
func (y *keyState) owes(k *core, now int64) {
	if y.use.Debt() > 0 {
		y.looks(k, now)
	}
}

// issuedLast has others asked if callers will soon lack permits. The caller has the state's lock.
func (y *keyState) issuedLast(k *core, now int64) {
	if y.use.Wants(0, now) {
		k.keys.funds.want(k, y, false)
	}
	if y.use.Low() {
		y.looks(k, now)
	}
}

// look asks others for permits of keys.
func (a *keyAsks) look(k *core) {
	now := k.clock.Mono()
	all, next := a.take(now)
	s, _ := k.segmentNow()
	r := keyRequests{}
	for _, y := range all {
		switch at, full := k.ask(y.keyState, s, now, r); {
		case full:
			a.putBack(y)
			next = min(next, now+int64(keyRound))
		case at < clock.Forever:
			a.at(k, y.keyState, at)
		default:
			k.keys.lines.serve(k, y.keyState) // nobody waits in vain
		}
	}
	if all := r.all(); len(all) > 0 {
		(*k.carrier.Load()).Ask(s.Keys.Lending.Self, all)
	}
	if next < clock.Forever {
		a.alarm.Set(k.clock, next)
	}
}

// keyRequests are asks for keys, by host; "" is for samples of the hosts.
type keyRequests map[string]*keyRequest

// keyRequest is an ask for keys, and its size by protocol.NeedBytes.
type keyRequest struct {
	protocol.Note
	size int
}

// room reports whether each host's ask has room for a key, whatever is asked for it.
func (r keyRequests) room(name string) bool {
	largest := 0
	for _, q := range r {
		largest = max(largest, q.size)
	}
	return largest == 0 || largest+protocol.MostNeedBytes(name) <= protocol.MostAsked
}

// add asks hosts for permits of a key in these windows.
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

// ask adds an ask for a key, if it needs one and there is room. It returns when to look at the key again;
// Forever if nothing is asked until callers lack something.
func (k *core) ask(y *keyState, s *window.Segment, now int64, r keyRequests) (again int64, full bool) {
	y.hold(&k.keys)
	defer y.mu.Unlock()
	again = clock.Forever
	if keys := s.Keys; keys != nil && !y.gone {
		y.adopt(k, keys, now)
		next := y.serveAsked(k, s, now)
		if y.borrows() {
			again, full = k.askIn(y, keys, now, r)
			if y.use.Debt() > 0 { // it is looked at in each window
				again = min(again, keys.Opens(now))
			}
		}
		again = min(again, next)
	}
	if full {
		again = now + int64(keyRound)
	}
	y.use.Looked(now, again)
	return again, full
}

// askIn is ask in the windows that run. The caller has the state's lock.
func (k *core) askIn(y *keyState, keys *plans.Keys, now int64, r keyRequests) (again int64, full bool) {
	if keys.Shut { // nobody lends now
		return keys.Opens(now), false
	}
	if !r.room(y.key.Name) {
		return 0, true
	}
	a, again := y.use.Ask(y.fleet(k, &keys.Windows), y.callers(), now)
	if a == nil {
		return again, false
	}
	k.mu.Lock()
	peers := k.mu.planner.KeyPeers(y.key, now, a.Debtors)
	k.mu.Unlock()
	r.add(a.Requests(peers), a.Windows, y.key.Name)
	k.keys.asked.Add(1)
	return again, false
}

// askedKeys lends permits of the keys that a guest asks for.
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
	self := ""
	for _, name := range names {
		s, told := k.lendKey(guest, name, ask.Windows, ask.Needs[name], from)
		if told > 0 {
			if self != "" && self != s.Keys.Lending.Self {
				return // it has registered anew: earlier loans are lost
			}
			self, loan.Permits[name] = s.Keys.Lending.Self, told
		}
	}
	if len(loan.Permits) > 0 {
		(*k.carrier.Load()).Tell(self, guest, loan)
	}
}

// lendKey lends to a guest what it needs of a key in these windows, as far as the rules say. It
// returns what to tell the guest, and the segment in whose time that was issued.
func (k *core) lendKey(guest, name string, windows []quota.Window, n protocol.Need, from int64) (s *window.Segment, told int64) {
	for {
		s, now := k.segmentNow()
		if !s.KeysLend || !slices.Equal(s.Keys.Running, windows) {
			return s, 0
		}
		hash := s.Keys.Lending.Hash ^ share.KeyOf(name).Hash
		if n.Part > 0 && !n.Has(hash) {
			return s, 0
		}
		y, _ := k.keys.find(name, nil, s.Keys, true)
		if y == nil {
			return s, 0
		}
		y.hold(&k.keys)
		if !y.gone {
			y.adopt(k, s.Keys, now)
			if s.Open(now) { // so its bounds are in force
				y.lendAtEdge(k, s, now)
				left, fleet := y.use.LeftToBorrowers(), y.fleet(k, &s.Keys.Windows)
				if fleet.Owners < fleet.Instances { // whoever is poor owns no part
					from = clock.Forever
				}
				told, next := y.use.Lend(guest, n, fleet, y.callers(), hash, from, now)
				k.keys.lent.Add(left - y.use.LeftToBorrowers())
				y.mu.Unlock()
				if next < clock.Forever {
					k.keys.asks.at(k, y, next)
				}
				return s, told
			}
		}
		y.mu.Unlock()
	}
}

// lendAtEdge lends to guests if a window has just begun, before callers take all. The segment's bounds are
// in force now. The caller has the state's lock.
func (y *keyState) lendAtEdge(k *core, s *window.Segment, now int64) {
	if !y.use.AtEdge() || !s.KeysLend {
		return
	}
	y.lend(k, s, now, y.use.LendAtEdge)
}

// serveAsked lends to guests whose asks stand, if reserves were released, and returns when to look again. The
// caller has the state's lock.
func (y *keyState) serveAsked(k *core, s *window.Segment, now int64) (next int64) {
	switch {
	case !s.KeysLend || !y.use.AsksStand():
		return clock.Forever
	case !s.Open(now): // its bounds may not be in force
		return now
	}
	y.lend(k, s, now, func(f plans.Fleet, c window.Callers, hash uint64, now int64, lends func(string) bool, tell func(string, int64)) {
		next = y.use.ServeAsked(f, c, hash, now, lends, tell)
	})
	return next
}

// lend has the account lend to guests of its own accord, and tells them. by is a method of the account.
func (y *keyState) lend(k *core, s *window.Segment, now int64, by func(f plans.Fleet, c window.Callers, hash uint64, now int64, lends func(guest string) bool, tell func(guest string, told int64))) {
	left, l := y.use.LeftToBorrowers(), &s.Keys.Lending
	lends := func(guest string) bool {
		_, lends := k.lendsTo(guest, now)
		return lends
	}
	by(y.fleet(k, &s.Keys.Windows), y.callers(), l.Hash^y.key.Hash, now, lends, func(guest string, told int64) {
		(*k.carrier.Load()).Tell(l.Self, guest, protocol.Note{Windows: s.Keys.Running, Permits: map[string]int64{y.key.Name: told}})
	})
	k.keys.lent.Add(left - y.use.LeftToBorrowers())
}

// borrowKey adds what a host has lent of a key, and serves those who wait for it.
func (k *core) borrowKey(name, host string, windows []quota.Window, told int64) {
	if k.gate.Segment().Keys == nil {
		return
	}
	if y := k.keys.known(name); y != nil && y.borrow(k, host, windows, told) {
		k.keys.lines.serve(k, y)
	}
}

// borrow adds what a host has lent of the key, and reports whether that is anything.
func (y *keyState) borrow(k *core, host string, windows []quota.Window, told int64) bool {
	s, _ := y.lock(k)
	defer y.mu.Unlock()
	if s.Keys == nil || !y.borrows() { // nothing is borrowed now
		return false
	}
	n := y.use.Borrow(host, windows, told, y.totals(k))
	y.tellBooked(&k.keys)
	k.keys.got.Add(max(0, n))
	return n > 0
}
