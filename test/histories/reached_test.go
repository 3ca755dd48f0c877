package histories

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// This file counts how often histories reach what is rare. A promise of which the hard
// cases never come is not tested.

// rare is a state that few instances are ever in.
type rare int

const (
	gap rare = iota
	backInTime
	restoreSeen
	staleAndFresh
	heldOn
	renewedWhileShut
	endedWhileShut
	raisedAndCut
	endAnnounced
	asked
	loanLent
	loanPassed
	loanBorrowed
	loanStranded
	backedOff
	paidByLoan
	budgetSpent
	budgetGivenBack
	budgetOver
	wentBack
	lagging
	compacted
	leaseGone
	keyAsked
	keyLent
	keyBorrowed
	keyFunded
	keySpent
	keyGone
	firstAtOnce
	rares
)

// rareText describes them. Those with a star are reached by the fixed histories of any test
// run, all by a long run.
var rareText = [rares]string{
	gap:              "*a history begins again, after a gap",
	backInTime:       "*a proof comes after a silence, and the history goes on",
	restoreSeen:      "*the store went back",
	staleAndFresh:    "*stale and fresh again within a window",
	heldOn:           "*permits are issued without a proof, by hold",
	renewedWhileShut: "*a lease is renewed while etcd shuts down",
	endedWhileShut:   "*a lease ends while etcd shuts down",
	raisedAndCut:     "a limit rises and falls within one lookback",
	endAnnounced:     "*an end is announced",
	asked:            "*an instance asks another for permits",
	loanLent:         "*a loan is made",
	loanPassed:       "borrowed permits are lent on",
	loanBorrowed:     "*a loan is used",
	loanStranded:     "*a window ends with a loan not used up",
	backedOff:        "*instances are held back",
	paidByLoan:       "*a debt is paid in a window in which something was borrowed",
	budgetSpent:      "*a budget has nothing left",
	budgetGivenBack:  "permits of a budget are given back",
	budgetOver:       "permits of a budget arrive after its window",
	wentBack:         "*a read is older than what is known, or of another cluster",
	lagging:          "*a watch lags behind and is opened again",
	compacted:        "*the revision of a watch is compacted",
	leaseGone:        "a lease is gone",
	keyAsked:         "*an instance asks another for permits of a key",
	keyLent:          "*permits of a key are lent",
	keyBorrowed:      "*an instance hears of a loan of a key",
	keyFunded:        "*permits of a key's long limit are taken",
	keySpent:         "*a key's long limit has nothing left",
	keyGone:          "*the key of one that lives is gone",
	firstAtOnce:      "*a fleet of one starts at once",
}

// logged are states by a part of what a session logs of them.
var logged = map[string]rare{
	"another cluster answered": wentBack, "a read returned an older revision": wentBack, "the watch fell behind": lagging,
	"revision has been compacted": compacted, "the lease has ended in etcd": leaseGone, "this instance's key was gone": keyGone,
}

// listener is a log that counts them.
type listener struct{ slog.Handler }

var heard = slog.New(listener{slog.DiscardHandler})

// Enabled implements slog.Handler.
func (listener) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (listener) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	for part, n := range logged {
		if strings.Contains(text, part) {
			n.note()
		}
	}
	return nil
}

// reached counts over all histories of this test run.
var reached struct {
	sync.Mutex
	n [rares]int
}

func (r rare) note() {
	reached.Lock()
	defer reached.Unlock()
	reached.n[r]++
}

// tellReached prints the table. With histories of all kinds it fails where there is a 0
// that must not be.
func tellReached(t *testing.T, long bool) {
	t.Helper()
	reached.Lock()
	defer reached.Unlock()
	var table strings.Builder
	for r, n := range reached.n {
		text := strings.TrimLeft(rareText[r], "*")
		fmt.Fprintf(&table, "\n%8d  %s", n, text)
		if n == 0 && *kindFlag == "" && (long || rareText[r][0] == '*') {
			t.Errorf("no history reached this: %s", text)
		}
	}
	t.Logf("reached, by all histories together:%s", table.String())
}

// watched is the source of an instance whose sinks note what they come to.
type watched struct {
	feed.Source
	began func(provider string, revision int64)    // a history has
	lent  func(provider string, uses []window.Use) // is told what is booked
	paid  func(provider string, p *grant)          // is told what pays a debt, by the limiter's knowledge
}

// Subscribe implements feed.Source.
func (s *watched) Subscribe(provider string, create func() feed.Sink) (feed.Sink, func() error, error) {
	got, leave, err := s.Source.Subscribe(provider, func() feed.Sink {
		n := &noting{Sink: create(), watched: s, provider: provider, clock: s.Clock(), lastOf: map[string][]window.Use{}}
		n.Sink.(interface {
			Trace(func(string, []window.Use))
		}).Trace(n.booked)
		return n
	})
	return got.(*noting).Sink, leave, err
}

// noting notes what a limiter comes to.
type noting struct {
	feed.Sink
	*watched
	provider string
	clock    *clock.Clock

	// Called by one goroutine at a time, but for booked: under the gate's lock.
	mu       sync.Mutex
	self     string // the incarnation
	since    int64  // the revision with which the history begins
	revision int64
	policy   *quota.Policy
	policyAt int64                   // its revision
	raised   int64                   // monotonic instant of the latest rise of the limit
	first    int64                   // wall time of the beginning of the history, if it is that of the first of a fleet; else 0
	proof    int64                   // monotonic instant at which it was asked for; 0 without one
	lastOf   map[string][]window.Use // by key; "": the provider's
}

// Reset implements feed.Sink.
func (s *noting) Reset(at clock.Instant, self string, v protocol.View) {
	s.mu.Lock()
	if s.revision > 0 {
		gap.note()
	}
	if v.Revision < s.revision {
		restoreSeen.note()
	}
	s.revision, s.policy, s.proof, s.first = v.Revision, v.Policy, 0, 0
	s.self, s.since, s.policyAt = self, v.Revision, v.PolicyRevision
	if v.First {
		s.first = s.clock.WallAt(at.Mono)
	}
	s.mu.Unlock()
	s.began(s.provider, v.Revision)
	s.Sink.Reset(at, self, v)
}

// Apply implements feed.Sink.
func (s *noting) Apply(at clock.Instant, c protocol.Change) {
	s.mu.Lock()
	s.revision = max(s.revision, c.Revision)
	if p := c.Policy; p != nil && s.policy != nil && len(p.Limits) > 0 && len(s.policy.Limits) > 0 {
		was, is := s.policy.Limits[0], p.Limits[0]
		if was.Window == is.Window && is.Permits > was.Permits {
			s.raised = at.Mono
		}
		if was.Window == is.Window && is.Permits < was.Permits && s.raised > 0 && at.Mono-s.raised < int64(p.Settle) {
			raisedAndCut.note()
		}
	}
	if c.Policy != nil || c.PolicyDeleted {
		s.policy, s.policyAt = c.Policy, c.Revision
	}
	s.mu.Unlock()
	s.Sink.Apply(at, c)
}

// Prove implements feed.Sink.
func (s *noting) Prove(sent clock.Instant) {
	s.mu.Lock()
	now := s.clock.Mono()
	if s.proof > 0 && s.policy != nil && now-s.proof >= int64(s.policy.Freshness) {
		backInTime.note()
		if l, wall := s.policy.Limits, s.clock.WallAt(now); len(l) > 0 {
			off := quota.WindowAt(l[0].Window, wall-(now-s.proof-int64(s.policy.Freshness)))
			if off == quota.WindowAt(l[0].Window, wall) {
				staleAndFresh.note()
			}
		}
	}
	s.proof = max(s.proof, sent.Mono)
	s.mu.Unlock()
	s.Sink.Prove(sent)
}

// Announce implements feed.Sink.
func (s *noting) Announce(until int64) {
	endAnnounced.note()
	s.Sink.Announce(until)
}

// Carry implements feed.Sink.
func (s *noting) Carry(c feed.Carrier) {
	if c != nil {
		c = carrying{c}
	}
	s.Sink.Carry(c)
}

// carrying notes what is asked and lent.
type carrying struct{ feed.Carrier }

// Tell implements feed.Carrier.
func (c carrying) Tell(self, guest string, loan protocol.Note) {
	if ofKeys(loan) {
		keyLent.note()
	} else {
		loanLent.note()
	}
	c.Carrier.Tell(self, guest, loan)
}

// Ask implements feed.Carrier.
func (c carrying) Ask(self string, all []protocol.Request) {
	for _, r := range all { // to one host, or to a sample
		if ofKeys(r.Note) {
			keyAsked.note()
		} else {
			asked.note()
		}
	}
	c.Carrier.Ask(self, all)
}

// ofKeys reports whether a note says something of keys other than the provider.
func ofKeys(n protocol.Note) bool {
	_, lent := n.Permits[""]
	_, asked := n.Needs[""]
	return len(n.Permits)+len(n.Needs) > 1 || !lent && !asked
}

// Borrow implements feed.Sink.
func (s *noting) Borrow(host string, loan protocol.Note) {
	if ofKeys(loan) {
		keyBorrowed.note()
	}
	s.Sink.Borrow(host, loan)
}

// Fund implements feed.Sink.
func (s *noting) Fund(all []escrow.KeyUse) {
	for i := range all {
		u := &all[i]
		left, key := u.Purse.Left(u.Permits), u.Key != ""
		switch {
		case key && left == 0:
			keySpent.note()
		case key && left > 0:
			keyFunded.note()
		case !key && left == 0:
			budgetSpent.note()
		}
		if !key && u.Back.N > 0 {
			budgetGivenBack.note()
		}
		if !key && s.clock.Wall() > u.End {
			budgetOver.note()
		}
	}
	s.Sink.Fund(all)
}

// booked notes what is booked, of the provider under the gate's lock, or of a key under the key's.
func (s *noting) booked(key string, uses []window.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.lastOf[key]
	s.lastOf[key] = uses
	s.notePaid(key, last, uses)
	if key != "" {
		return
	}
	now := s.clock.Mono()
	s.lent(s.provider, uses)
	for _, u := range uses {
		i := slices.IndexFunc(last, func(o window.Use) bool { return o.Window.Length == u.Window.Length })
		if i < 0 {
			continue
		}
		was := last[i]
		switch {
		case was.Window != u.Window:
			if was.Borrowed > was.Used {
				loanStranded.note()
			}
			if was.Borrowed > 0 && was.Lent > was.Bound-was.Borrowed {
				loanPassed.note()
			}
		case u.Used > was.Used:
			if u.Borrowed > 0 && was.Used < u.Borrowed {
				loanBorrowed.note()
			}
			if s.first > 0 && s.policy != nil && u.Window.Start() < s.first+int64(s.policy.Settle) {
				firstAtOnce.note()
			}
			if s.policy != nil && s.policy.Outage == quota.OutageHold && s.proof > 0 && now-s.proof > int64(s.policy.Freshness)+int64(u.Window.Length) {
				heldOn.note()
			}
		}
	}
}

// notePaid notes the permits that have paid debts since the last time, in the windows that bind: a
// payment is a use like any other.
func (s *noting) notePaid(key string, last, uses []window.Use) {
	p := &grant{pays: true, key: key, id: s.self, first: s.since, policy: s.policyAt}
	p.stale = s.policy != nil && s.clock.Mono()-s.proof >= int64(s.policy.Freshness)
	for _, u := range uses {
		if u.Bound == shape.Unbounded {
			continue
		}
		n := u.Paid
		if i := slices.IndexFunc(last, func(o window.Use) bool { return o.Window == u.Window }); i >= 0 && last[i].Paid <= n {
			n -= last[i].Paid
		}
		if n > 0 && u.Lent > 0 {
			paidByLoan.note()
		}
		p.permits, p.windows = max(p.permits, n), append(p.windows, u.Window)
	}
	if p.permits > 0 {
		s.paid(s.provider, p)
	}
}
