// Package escrow hands the permits of a long window out to instances. It is pure: package
// coordinator reads and writes the keys, and every decision is a function here.
//
// A window has one total, and a holding for each instance that has taken permits of it.
// One transaction writes both, on the condition that both are as they were read. So
//
//	total.Out >= the permits that all instances may issue in the window
//
// holds after every commit, whatever is lost, late or sent twice, as long as the store is
// the one that it was; and permits are handed out only while Out is within the limit.
package escrow

import (
	"cmp"
	"encoding/json"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Total is the value of a window's key.
type Total struct {
	// Limit is the one from which permits were handed out last, Out their number, less
	// those that were given back.
	Limit int64 `json:"limit"`
	Out   int64 `json:"out"`
	// Cluster is the ID of the etcd cluster that wrote this.
	Cluster uint64 `json:"cluster,string"`
	// Withheld says why nothing more is handed out in this window; empty if more is.
	Withheld string `json:"withheld,omitempty"`
	// Writes counts the transactions.
	Writes int64 `json:"writes"`
}

// Holding is the value of an instance's key in a window.
type Holding struct {
	By    string `json:"by"` // incarnation
	Taken int64  `json:"taken"`
	// Used is how many of them were issued when this was written.
	Used int64 `json:"used"`
}

type wire[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"budget"`
}

// Encode writes a Total, a Holding or a Mark as its key's value.
func Encode[T Total | Holding | Mark](v T) (string, error) {
	b, err := json.Marshal(wire[T]{quota.Schema, v})
	return string(b), err
}

// MaxBytes bounds a key's value.
const MaxBytes = 4 << 10

// Decode is the reverse of Encode.
func Decode[T Total | Holding | Mark](value []byte) (v T, err error) {
	var w wire[T]
	err = protocol.Decode("budget", value, MaxBytes, &w)
	return w.Value, err
}

// ReadTotal returns the total in a key's value, as the cluster has answered. Where it cannot
// be read nothing more is handed out.
func ReadTotal(value []byte, cluster uint64) Total {
	t, err := Decode[Total](value)
	if err != nil {
		return Total{Withheld: unreadable, Cluster: cluster}
	}
	return t
}

// Reading is what one read found of a window.
type Reading struct {
	Store          // that answered
	Revision int64 // of it
	// Total is the newest of the limit's, and TotalRevision its key's; 0 if there is
	// none. Older says that it is of an earlier window.
	Total         Total
	TotalRevision int64
	Older         bool
	Own           Holding
	OwnRevision   int64 // 0 if there is none
}

// reasons why a window is withheld.
const (
	otherCluster = "etcd was restored from a backup: another cluster ID"
	earlierStore = "etcd was restored from a backup: it may have lost what was taken"
	wentBack     = "etcd was restored from a backup: an instance knows of more"
	noMark       = "etcd may have been restored from a backup: it has no mark of its own"
	unreadable   = "its total in etcd cannot be read"
	badMark      = "the mark of the store in etcd cannot be read"
)

// Account is an instance's own knowledge of its holding in one window. The zero Account
// has taken nothing. It is not safe for concurrent use.
type Account struct {
	taken    int64 // as committed at own
	own      int64 // revision of the holding; 0: there is none
	total    int64 // newest revision known of the total
	revision int64 // newest known of the store
	cluster  uint64
	// unknown are the values sent as taken, on the condition that the holding is at
	// own, whose outcome is unknown. One of them at most comes to be committed.
	unknown []unanswered
	lost    bool // the store went back
}

// unanswered is a value that was sent so many times in a row.
type unanswered struct{ taken, times int64 }

// mostUnknown bounds Account.unknown. Beyond it only what is taken is sent, again and again: once
// that is committed, nothing else can be.
const mostUnknown = 4

// May returns how many permits the instance may have issued in the window by now.
func (a *Account) May() int64 {
	may := a.taken
	for _, u := range a.unknown {
		may = min(may, u.taken)
	}
	return may
}

// Unsure reports whether the instance may hold more than it knows: an answer is missing.
func (a *Account) Unsure() bool { return len(a.unknown) > 0 }

// Read takes what a read has found. A holding that has moved on is one of those that were
// sent, and no other can be committed any more. In another cluster it counts only where an
// operator has said what was used: it may have been sent by what the old cluster had.
func (a *Account) Read(f *Reading) {
	moved := f.OwnRevision != a.own
	sent := false
	for _, u := range a.unknown {
		sent = sent || u.taken == f.Own.Taken
	}
	totalWentBack := f.Older && a.total != 0 || f.TotalRevision < a.total
	switch {
	case a.lost:
	case f.Revision < a.revision, totalWentBack, f.OwnRevision < a.own,
		moved && !sent, !moved && f.OwnRevision != 0 && f.Own.Taken != a.taken,
		a.cluster != 0 && a.cluster != f.Cluster && (f.TotalRevision == 0 || f.Withheld() != ""):
		a.taken, a.unknown, a.lost = a.May(), nil, true
	case moved:
		a.taken, a.own, a.unknown = f.Own.Taken, f.OwnRevision, nil
	}
	a.revision, a.cluster = f.Revision, f.Cluster
	if a.total = f.TotalRevision; f.Older {
		a.total = 0
	}
	if a.lost {
		a.own = f.OwnRevision
	}
}

// Sent notes that a transaction is on its way that makes the holding that large.
func (a *Account) Sent(taken int64) {
	if n := len(a.unknown); n == 0 || a.unknown[n-1].taken != taken {
		a.unknown = append(a.unknown, unanswered{taken, 0})
	}
	a.unknown[len(a.unknown)-1].times++
}

// Committed takes the answer that what was Sent last is committed, at a revision.
func (a *Account) Committed(revision int64) {
	a.taken = a.unknown[len(a.unknown)-1].taken
	a.own, a.total, a.revision, a.unknown, a.lost = revision, revision, revision, nil, false
}

// Refused takes the answer that what was Sent last is not committed, with what it has found. If
// the holding is where it was, that can never be committed any more. If it has moved on, a copy
// of what was Sent may have come before, and have been committed.
func (a *Account) Refused(f *Reading) {
	if a.Read(f); !a.Unsure() {
		return
	}
	last := len(a.unknown) - 1
	if a.unknown[last].times--; a.unknown[last].times == 0 {
		a.unknown = a.unknown[:last]
	}
}

// Step is a transaction to send: both keys' new values, on the condition that they are at
// the revisions found.
type Step struct {
	Total Total
	Own   Holding
}

// Use is what an instance does with its permits of a window.
type Use struct {
	Used      int64 // issued in the window
	Need      int64 // permits wanted at once and not had: the largest request, or 0
	Rate      int64 // issued in the last second
	Idle      bool  // nothing was issued or wanted for a while
	Keep      int64 // permits that it does not give back while it is idle
	Ends      bool  // the instance ends: it will issue nothing more
	WriteUsed bool  // write into the holding what was used, even without a taking
	Full      bool  // a short limit lets it issue nothing now
	// Along says that a transaction is sent anyway, for another window.
	Along bool
}

// Rule is what chunks depend on.
type Rule struct {
	Limit     int64
	Instances int64 // alive, at least 1
	// Share is how many permits the instance may issue in a second, by its share of the
	// short limits; negative without a short limit.
	Share int64
}

// apart is the part of the limit that all instances have in hand without a short limit,
// and without any use: one in so many.
const apart = 100

// Chunk returns the most that an instance has in hand where left permits are left, and it
// issued rate permits in the last second: those that it may issue in a second or, without
// a short limit, has issued in one. As the end comes near it is an equal part.
func (r Rule) Chunk(left, rate int64) int64 {
	return max(1, min(r.most(rate), left/max(1, r.Instances)))
}

func (r Rule) most(rate int64) int64 {
	if r.Share < 0 {
		return max(r.Limit/apart/max(1, r.Instances), rate)
	}
	return r.Share
}

// scarce reports whether so little is left that an instance takes nothing that it cannot
// issue now: two chunks for each.
func (r Rule) scarce(left, rate int64) bool { return left/2/max(1, r.Instances) < r.most(rate) }

// more returns how many of the permits that are left an instance takes that has so many in hand.
func (r Rule) more(left, hand int64, u Use) int64 {
	if u.Full && r.scarce(left, u.Rate) {
		return 0
	}
	want := r.Chunk(left, u.Rate)
	if u.Need <= left+hand { // or it cannot be had
		want = max(want, u.Need)
	}
	if hand < (want+1)/2 || hand < u.Need && u.Need <= want || u.Along && hand < want {
		return max(0, min(left, want-hand))
	}
	return 0
}

// Withheld says why nothing more is handed out in the window; empty if more is.
func (f *Reading) Withheld() string {
	switch {
	case f.TotalRevision != 0 && f.TotalRevision < f.Told && f.Total.Withheld != unreadable:
		return ""
	case f.TotalRevision != 0 && f.Total.Cluster != f.Cluster:
		return cmp.Or(f.Total.Withheld, otherCluster)
	case f.TotalRevision == 0 || f.Older:
		return f.Lost
	}
	return f.Total.Withheld
}

// Left returns how many permits may be handed out.
func (r Rule) Left(f *Reading) int64 {
	switch {
	case f.Withheld() != "":
		return 0
	case f.TotalRevision == 0 || f.Older:
		return r.Limit
	}
	return max(0, r.Limit-f.Total.Out)
}

// Next returns the transaction that an instance should send after it has Read what was
// found; ok is false if there is no need of one. A sender that lowers its holding
// issues no more than that from before on.
func (a *Account) Next(r Rule, f *Reading, u Use, by string) (s Step, ok bool) {
	if s.Total = f.Total; f.TotalRevision == 0 || f.Older {
		s.Total = Total{}
	}
	foreign := f.TotalRevision != 0 && f.Total.Cluster != f.Cluster
	if s.Total.Withheld = f.Withheld(); foreign {
		s.Total.Withheld = otherCluster
	}
	s.Total.Limit, s.Total.Cluster = r.Limit, f.Cluster
	s.Total.Writes++
	left, hand, taken := r.Left(f), a.May()-u.Used, a.May()
	s.Own = Holding{by, taken, u.Used}
	switch {
	case a.lost: // say so, and what this instance has taken by what it knows
		s.Total.Withheld = cmp.Or(s.Total.Withheld, wentBack)
		return s, true
	case len(a.unknown) >= mostUnknown:
		s.Own.Taken = f.Own.Taken
		return s, true
	case s.Total.Withheld != "":
		return s, foreign || u.WriteUsed && u.Used != f.Own.Used
	case u.Ends:
		taken = u.Used
	case u.Idle:
		taken = min(taken, u.Used+u.Keep)
	default:
		taken += r.more(left, hand, u)
	}
	s.Own.Taken = taken
	// Out counts what is committed, not what this instance makes do with.
	s.Total.Out += taken - f.Own.Taken
	return s, s.Own.Taken != f.Own.Taken || u.WriteUsed && u.Used != f.Own.Used
}

// Corrected returns the total after an operator's word on what was used in the window. What the
// living may still issue of what they have in hand counts too; what others had is lost.
func (t Total) Corrected(used, hand int64, cluster uint64) Total {
	t.Out, t.Withheld, t.Cluster = used+hand, "", cluster
	t.Writes++ // so that nobody takes it for a refusal: Purse.Refused
	return t
}
