package consumer

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what a core asks, lends and borrows of keys: docs/protocol.md, section 15.
// The counts are in window.Account. Nothing here decides whether the sum is exact.

const (
	// keyAnswerTime is how long an ask may take until the next one for the key. It doubles
	// with each ask that brings too little, up to one keyAhead of the shortest window.
	keyAnswerTime = 50 * time.Millisecond
	// keyRound is the time between two rounds of asks, where one has no room for all keys.
	keyRound = 20 * time.Millisecond
	// mostKeyHosts bounds the hosts that are asked for a key at a time.
	mostKeyHosts = 16
	// vainKeyWindows is after how many windows without a loan a key rests.
	vainKeyWindows = 3
	// keyAhead is the part of the shortest window for which permits are borrowed, one in
	// keyAhead.
	keyAhead = 8
)

// keyAsks are the keys for which others are asked, and when next.
type keyAsks struct {
	alarm alarm

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
	a.alarm.set(k.clock, at)
}

// take returns the keys that are due, and when the next one is.
func (a *keyAsks) take(now int64) (all []*keyState, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next = window.Forever
	for y, at := range a.due {
		if at > now {
			next = min(next, at)
			continue
		}
		all = append(all, y)
		delete(a.due, y)
	}
	return all, next
}

// keyLack is what a key's callers lack. The state's lock guards it.
type keyLack struct {
	in      quota.Window // the shortest one, of which all below but vain and rests is
	lacking int64        // permits refused since the latest ask
	refused int64
	asked   int64 // by the latest ask; 0 if there was none
	got     int64 // since then
	lent    int64
	at      int64 // monotonic: of the latest ask
	until   int64 // monotonic: before it nothing more is asked
	short   int   // asks in a row that brought too little
	low     int64 // with fewer permits left others are asked
	queued  bool  // it is in keyAsks
	calls   window.Calls

	from  int   // of KeyHosts: the first one that is asked next
	width int   // how many are
	vain  int   // windows in a row with asks and without loans
	rests int64 // the index of the window until which nothing is asked
}

// enter begins another window, if another one runs.
func (l *keyLack) enter(w quota.Window) {
	if l.in == w {
		return
	}
	switch {
	case l.lent > 0:
		l.vain = 0
	case l.asked > 0:
		if l.vain++; l.vain >= vainKeyWindows {
			l.rests = w.Index + 1<<min(l.vain-vainKeyWindows, 2)
		}
	}
	if l.in.Length != w.Length {
		l.vain, l.rests = 0, 0
	}
	*l = keyLack{in: w, queued: l.queued, calls: l.calls, from: l.from, width: max(1, l.width), vain: l.vain, rests: l.rests}
}

// hopes reports whether others may lend in this window.
func (l *keyLack) hopes(windows *window.Windows) bool {
	return windows.Lending.Borrows && l.in.Index >= l.rests
}

// asked reports whether others were asked for permits in the windows that run: what they lend
// would be lost with the state. The caller has the state's lock.
func (y *keyState) asked(keys *window.Keys) bool {
	return y.lack != nil && y.lack.asked > 0 && slices.Contains(keys.Running, y.lack.in)
}

// lackOf returns what callers of a key lack in the windows that run; nil if nothing can be
// borrowed. The caller has the state's lock.
func (y *keyState) lackOf() *keyLack {
	windows := y.use.Windows()
	if windows == nil || !windows.Lending.Borrows {
		return nil
	}
	if y.lack == nil {
		y.lack = &keyLack{}
	}
	y.lack.enter(windows.Running[0])
	return y.lack
}

// lacks notes that n permits of a key were refused, and has others asked, or etcd where its
// long limits lack. want are the permits that a caller wants now, 0 if none does. The caller has the
// state's lock.
func (y *keyState) lacks(k *core, n, want, now int64) {
	if y.use.Wants(want, now) {
		k.keys.funds.want(k, y, want > 0)
	}
	l := y.lackOf()
	if end, long := y.use.SpentUntil(max(1, want)); l == nil || end != 0 || long && y.use.LeftToBorrowers() >= max(1, want) {
		return // what others lend is of no use
	}
	n = min(n, quota.MaxPermits)
	l.lacking, l.refused = min(l.lacking+n, quota.MaxPermits), min(l.refused+n, quota.MaxPermits)
	if l.hopes(y.use.Windows()) && (!l.queued || l.until <= now) { // it may be queued for the window before
		l.queued = true
		k.keys.asks.at(k, y, max(now, l.until))
	}
}

// earliest returns the instant before which a caller surely does not have n permits of a key, whatever
// others lend or etcd has left; Forever if neither helps. The caller has the state's lock.
func (y *keyState) earliest(k *core, n, now int64) int64 {
	switch end, long := y.use.SpentUntil(n); {
	case end != 0:
		return window.Forever
	case long && y.use.LeftToBorrowers() >= n:
		return now
	case y.lackOf() == nil:
		return window.Forever
	}
	of := y.totals(k)
	return y.use.Eta(n, now, func(w quota.Window) (total, later int64) {
		if total = of(w); total == 0 { // nobody knows until when
			total = window.Unbounded
		}
		return total, total
	})
}

// owes has others asked for a debt: at once if callers want permits of the key, or else late in the
// window, when its owner hardly needs a permit any more. The caller has the state's lock.
func (y *keyState) owes(k *core, now int64) {
	if y.use.Debt() == 0 {
		return
	}
	if l := y.lackOf(); l != nil && !l.queued {
		l.queued = true
		k.keys.asks.at(k, y, max(now, l.until))
	}
}

// issuedLast has others asked if few borrowed permits are left. The caller has the state's
// lock.
func (y *keyState) issuedLast(k *core, now int64) {
	if y.use.Wants(0, now) {
		k.keys.funds.want(k, y, false)
	}
	if l := y.lack; l != nil && l.low > 0 && y.use.LeftToBorrowers() < l.low {
		y.lacks(k, 0, 0, now)
	}
}

// need returns how many permits to ask for now: what is owed, what callers lack, and what they will
// want soon at the rate of this window, but at most twice what they have wanted in it.
func (y *keyState) need(l *keyLack, debt, now int64) int64 {
	used, gone, rest := y.use.Rate(now)
	if rest <= 0 {
		return 0
	}
	called := used + l.refused + y.waiting()
	soon := min(rest, max(int64(l.in.Length)/keyAhead, int64(2*keyAnswerTime)))
	will := int64(float64(called) * float64(soon) / float64(max(gone, int64(keyRound))))
	will = min(max(l.lacking, will), called)
	if l.low = (will + 1) / 2; y.line == nil && l.lacking == 0 && debt == 0 && (l.got < l.asked || y.use.LeftToBorrowers() >= l.low) {
		return 0
	}
	return debt + y.waiting() + will - y.use.LeftToBorrowers()
}

// look asks others for permits of keys.
func (a *keyAsks) look(k *core) {
	now := k.clock.Mono()
	all, next := a.take(now)
	slices.SortFunc(all, func(x, y *keyState) int { return cmp.Compare(x.key.Name, y.key.Name) })
	s, _ := k.segmentNow()
	r := keyRequests{}
	for _, y := range all {
		if at := k.ask(y, s.Keys, now, r); at < window.Forever {
			a.at(k, y, at)
		} else {
			k.keys.lines.serve(k, y) // nobody waits in vain
		}
	}
	if all := r.all(); len(all) > 0 {
		(*k.carrier.Load()).Ask(s.Keys.Lending.Self, all)
	}
	if next < window.Forever {
		a.alarm.set(k.clock, next)
	}
}

// keyRequests are asks for keys by host.
type keyRequests map[string]*keyRequest

// keyRequest is an ask for keys, and its size by protocol.NoteBytes.
type keyRequest struct {
	protocol.Note
	size int
}

// room reports whether each host's ask has room for a key.
func (r keyRequests) room(hosts []string, name string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool {
		return r[h] != nil && r[h].size+protocol.NoteBytes(name) > protocol.MostAsked
	})
}

// add asks hosts for so many permits each.
func (r keyRequests) add(hosts []string, windows []quota.Window, name string, each int64) {
	for _, h := range hosts {
		if r[h] == nil {
			r[h] = &keyRequest{Note: protocol.Note{Windows: windows, Permits: map[string]int64{}}}
		}
		r[h].Permits[name] = each
		r[h].size += protocol.NoteBytes(name)
	}
}

// all returns the asks, by host.
func (r keyRequests) all() (all []protocol.Request) {
	for _, host := range slices.Sorted(maps.Keys(r)) { // in the same order each time
		all = append(all, protocol.Request{Host: host, Note: r[host].Note})
	}
	return all
}

// ask adds an ask for a key, if it needs one. It returns when to look at the key again;
// Forever if nothing more is asked in this window until callers lack something.
func (k *core) ask(y *keyState, keys *window.Keys, now int64, r keyRequests) (again int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lack.queued = false
	if keys == nil || y.gone {
		return window.Forever
	}
	y.adopt(k, keys, now)
	l := y.lackOf()
	if l == nil {
		return window.Forever
	}
	switch {
	case keys.Shut: // nobody lends now
		l.queued = true
		return keys.Opens(now)
	case now < l.until:
		l.queued = true
		return l.until
	}
	again = window.Forever // but a debt is looked at in each window
	debt := y.use.Debt()
	if debt > 0 {
		l.queued, again = true, keys.Opens(now)
		if late := keys.Late(); y.line == nil && l.refused == 0 && now < late {
			return late
		}
	}
	n := y.need(l, debt, now)
	if n <= 0 || !l.hopes(&keys.Windows) {
		if y.line != nil { // they are looked at next, and have the key looked at again
			l.until = now + int64(keyRound)
		}
		return again
	}
	if l.got < l.asked { // others have more, perhaps
		l.from, l.width, l.short = l.from+l.width, min(2*l.width, mostKeyHosts), l.short+1
	}
	if y.line.Large() > 0 { // what is left of a window lies here and there
		l.width = mostKeyHosts
	}
	l.width = int(max(int64(l.width), min(debt, mostKeyHosts))) // each is asked for its part
	k.mu.Lock()
	hosts := k.mu.planner.KeyHosts(y.key, l.from, l.width, now)
	k.mu.Unlock()
	if len(hosts) == 0 {
		l.rests = l.in.Index + 1 // instances begin and end at windows' edges
		return again
	}
	l.queued = true
	if !r.room(hosts, y.key.Name) {
		return now + int64(keyRound)
	}
	n = min(n, quota.MaxPermits)
	each := (n + int64(len(hosts)) - 1) / int64(len(hosts))
	if y.line.Large() > 0 && l.short > 0 { // each has it for the first guest in the window's order
		each = n
	}
	r.add(hosts, keys.Running, y.key.Name, each)
	k.keys.asked.Add(1)
	l.at, l.asked, l.got, l.lacking = now, n, 0, 0
	l.until = now + min(int64(keyAnswerTime)<<l.short, max(int64(keyAnswerTime), int64(l.in.Length)/keyAhead))
	if l.vain >= vainKeyWindows { // one ask is enough to see whether others have some again
		_, _, rest := y.use.Rate(now)
		l.until = max(l.until, now+rest)
	}
	return l.until
}

// askedKeys lends permits of the keys that a guest asks for.
func (k *core) askedKeys(guest string, ask protocol.Note) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(ask.Permits)), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return
	}
	if _, lends := k.lendsTo(guest, k.clock.Mono()); !lends {
		return
	}
	loan := protocol.Note{Windows: ask.Windows, Permits: map[string]int64{}}
	self := ""
	for _, name := range names {
		s, told := k.lendKey(guest, name, ask.Windows, ask.Permits[name])
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

// lendKey lends up to n permits of a key in these windows. It returns what to tell the guest,
// and the segment in whose time that was issued.
func (k *core) lendKey(guest, name string, windows []quota.Window, n int64) (s *window.Segment, told int64) {
	for {
		s, now := k.segmentNow()
		if !s.KeysLend || !slices.Equal(s.Keys.Running, windows) {
			return s, 0
		}
		y, _ := k.keys.find(name, s.Keys, true)
		if y == nil {
			return s, 0
		}
		y.mu.Lock()
		if !y.gone {
			y.adopt(k, s.Keys, now)
			if s.Open(now) { // so its bounds are in force
				// Large calls of several instances would block each other: see Gate.yieldsLocked.
				if yields := y.line.Large() > 0 && window.Before(guest, s.Keys.Lending.Self, windows[0]); y.line == nil || yields && y.line.Permits() == y.line.Large() {
					if y.lack == nil {
						y.lack = &keyLack{}
					}
					calls := &y.lack.calls
					if yields {
						calls = nil
					}
					left := y.use.LeftToBorrowers()
					if told = y.use.Lend(guest, n, now, calls); yields && told > 0 {
						y.lack.vain = 0 // others' large calls came first: not that nobody had any
					}
					k.keys.lent.Add(left - y.use.LeftToBorrowers())
				}
				y.mu.Unlock()
				return s, told
			}
		}
		y.mu.Unlock()
	}
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
	l := y.lackOf()
	if s.Keys == nil || l == nil { // nothing is borrowed now
		return false
	}
	n := y.use.Borrow(host, windows, told, y.totals(k))
	y.tellBooked(&k.keys)
	k.keys.got.Add(max(0, n))
	if n <= 0 || y.gone {
		return n > 0
	}
	l.lent, l.got = l.lent+n, l.got+n
	if l.got >= l.asked {
		l.until, l.width, l.short = l.at+int64(keyRound), 1, 0
		if l.queued {
			k.keys.asks.at(k, y, l.until)
		}
	}
	return true
}
