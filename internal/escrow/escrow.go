// Package escrow hands out to instances the permits of long limits: those that are taken from etcd, which are the
// limits of windows above quota.MaxWindow and those of calls in flight. It decides, and does no I/O: package
// coordinator reads and writes the entries in etcd.
//
// Each window of a provider or of one of its keys has one Total in etcd, of which all instances take. A limit that
// counts by parts of time (protocol.Part), such as a sliding one, has one Total for all time. The provider is the key
// with the empty name. An instance has a Purse for each window, or part of time, of which it takes permits.
package escrow

import (
	"encoding/json"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Total is the value of a window's entry in etcd.
type Total struct {
	// Limit is the window's limit, in permits, as the last writer knew it.
	Limit int64 `json:"limit"`
	// Out is how many permits were handed out, less those that were given back. Where a total counts by parts it
	// is of all time, and permits that come back for a part that Parts does not have any more stay in it.
	Out int64 `json:"out"`
	// Cluster is the ID of the etcd cluster that this was written in.
	Cluster uint64 `json:"cluster,string"`
	// Withheld is the reason that was written why nothing more is handed out in this window; empty if none was.
	// Purse.Withheld says whether it still holds, and knows reasons that are not written here.
	Withheld string `json:"withheld,omitempty"`
	// Writes counts the transactions that wrote this total, with an operator's corrections: by it Purse.Refused
	// tells whether another one came between.
	Writes int64 `json:"writes"`
	// Stated is what the provider's responses have said is left of the window.
	Stated Stated `json:"stated,omitzero"`
	// Newest, Parts, From and Recent are of a total that counts by parts of time alone. Newest is the number
	// (protocol.Part.Number) of the first entry of Parts. Parts are the permits of Out by the part of time in
	// which they may be issued, the newest part first; it has no more than the last Part.Counted + slack of them.
	// From is the number of the part from which on Withheld is over; 0 if it stays.
	Newest int64   `json:"newest,omitempty"`
	Parts  []int64 `json:"parts,omitempty"`
	From   int64   `json:"from,omitempty"`
	// Recent has the nonces of the last writes, the newest first, at most recent of them: entry i is the
	// Rule.Nonce of the write with the number Writes - i, 0 if that has none.
	Recent []uint32 `json:"recent,omitempty"`
	// Carried are permits of other totals that count in this one, and not in Out: those of limits that were
	// replaced until CarriedTo, the latest protocol.Was.Until.
	Carried   []Carried `json:"carried,omitempty"`
	CarriedTo int64     `json:"carried_to,omitempty"`
	// Asks are of a limit in flight alone.
	Asks []Ask `json:"asks,omitempty"`
}

// wire is how a Total or a Mark is stored: in JSON, with the number of the schema that it was written by.
type wire[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"budget"`
}

// Encode returns a Total or a Mark as the value of its entry in etcd.
func Encode[T Total | Mark](v T) (string, error) {
	b, err := json.Marshal(wire[T]{quota.Schema, v})
	return string(b), err
}

// MaxBytes bounds that value.
const MaxBytes = 4 << 10

// Decode is the reverse of Encode. Its error names what is wrong with the value.
func Decode[T Total | Mark](value []byte) (v T, err error) {
	var w wire[T]
	err = protocol.Decode("budget", value, MaxBytes, &w)
	return w.Value, err
}

// ReadTotal returns the total in a value that the cluster with this ID has answered. If it cannot be read, the
// result is a total of which nothing more is handed out.
func ReadTotal(value []byte, cluster uint64) Total {
	t, err := Decode[Total](value)
	if err != nil {
		return Total{Withheld: unreadable, Cluster: cluster}
	}
	return t
}

// The reasons why nothing more is handed out in a window.
const (
	otherCluster = "etcd was restored from a backup (it has another cluster ID)"
	earlierStore = "etcd was restored or has lost its data, and may not know what was taken"
	wentBack     = "etcd was restored from a backup (an instance knows of more than it counts)"
	noMark       = "etcd may have been restored from a backup (it has no mark of its own)"
	unreadable   = "its total in etcd cannot be read"
	badMark      = "the mark of the store in etcd cannot be read"
)

// Use is what an instance does with its permits of a window, and what it wants.
type Use struct {
	Used int64 // permits issued in the window
	Need int64 // permits that the largest request wants that could not be met, with those reserved; 0 if all could
	Rate int64 // permits a second that were issued lately
	Look bool  // no permits are to be taken: some may be given back, or the total is only read
	// Stated is what the provider has told this instance is left, if etcd does not know it yet.
	Stated Stated
	// By names the instance in asks, where it takes permits of a limit in flight or, with Look, takes its ask back.
	// Otherwise it is 0. Has is how many permits it has, with those of calls that are under way.
	By  uint64
	Has int64
}

// Rule is what decides how many permits an instance takes at a time.
type Rule struct {
	Limit     int64 // of the window, in permits
	Instances int64 // how many are in the view; 0 counts as 1
	// Share is how many permits the short limits let this instance issue in a second. It is negative if that is
	// Limit or more, or if there are no short limits. Of a limit in flight it is how many permits are to be kept in
	// hand.
	Share int64
	// Now is corrected wall time, in nanoseconds since the Unix epoch.
	Now int64
	// Nonce is a random number, by which the total's Recent names this write; 0 if it has no name.
	Nonce uint32
	// Carried and CarriedTo are what the total is to have, if CarriedTo is later than its own.
	Carried   []Carried
	CarriedTo int64
}

// handParts bounds what may lie in hand where no short limit bounds it: one in handParts of the permits, by all
// instances together, even if none of them was issued yet.
const handParts = 100

// Chunk returns the number of permits up to which an instance fills its hand: the permits that it has taken and not
// issued. left is how many can still be taken, and rate how many it has issued a second lately.
//
// It is Share; or, if that is negative, the larger of rate and an equal part, by Instances, of one in handParts of the
// limit. So the hand lasts for about a second. It is never more than an equal part of left, so that the last permits
// are divided, but at least 1.
func (r Rule) Chunk(left, rate int64) int64 {
	return max(1, min(r.most(rate), left/max(1, r.Instances)))
}

func (r Rule) most(rate int64) int64 {
	if r.Share < 0 {
		return max(r.Limit/handParts/max(1, r.Instances), rate)
	}
	return r.Share
}

// more returns how many more permits an instance takes. hand is how many it has in hand, and left how many can still
// be taken. It fills its hand up to Chunk once that is less than half full, or holds too few for Use.Need. If Need is
// more than Chunk and can be had, it fills the hand up to Need.
func (r Rule) more(left, hand int64, u Use) int64 {
	if u.Look {
		return 0
	}
	want := r.Chunk(left, u.Rate)
	switch {
	case u.By != 0: // calls end one by one
		return max(0, min(left, max(want, u.Need)-hand))
	case u.Need <= left+hand: // otherwise it cannot be had
		want = max(want, u.Need)
	}
	if hand < (want+1)/2 || hand < u.Need && u.Need <= want {
		return max(0, min(left, want-hand))
	}
	return 0
}

// Corrected returns the total after an operator has said how many permits were used in the window. hand is
// how many the instances alive have in hand: they may still issue these, so they count as handed out. What
// instances that are gone had in hand counts no more, and is handed out again. cluster is the ID of the cluster that
// answers. of is the part of time that runs, where the total counts by parts: all of used and hand counts from now on
// in that part, or in Newest if it is later. to is the latest protocol.Was.Until of limits that used has
// the permits of.
func (t Total) Corrected(used, hand, to int64, of protocol.Part, cluster uint64) Total {
	t.Out, t.Withheld, t.Cluster = used+hand, "", cluster
	if of.ByParts() {
		t.Newest, t.Parts, t.From = max(t.Newest, of.Number), []int64{used + hand}, 0
		t.name(0)
	}
	t.Stated, t.Carried, t.CarriedTo = Stated{}, nil, max(t.CarriedTo, to) // the operator knows better
	// Else a writer whose own transaction came just before this one would find the Writes that it expects with another
	// Out, and conclude that its transaction never was: Purse.Refused.
	t.Writes++
	return t
}
