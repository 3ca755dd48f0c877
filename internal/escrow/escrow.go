// Package escrow hands the permits of a long window out to instances. It decides, and does no I/O: package
// coordinator reads and writes the entries in etcd.
//
// Each window of a provider or of one of its keys has one Total in etcd, of which all instances take. The
// provider is the key with the empty name. An instance has a Purse for each window of which it takes permits.
package escrow

import (
	"encoding/json"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Total is the value of a window's entry in etcd.
type Total struct {
	// Limit is the limit by which permits were handed out last. Out is how many permits were handed out
	// in the window, less those that were given back.
	Limit int64 `json:"limit"`
	Out   int64 `json:"out"`
	// Cluster is the ID of the etcd cluster that wrote this.
	Cluster uint64 `json:"cluster,string"`
	// Withheld says why nothing more is handed out in this window; empty if more is.
	Withheld string `json:"withheld,omitempty"`
	// Writes counts the transactions.
	Writes int64 `json:"writes"`
	// Stated is what the provider says of the window.
	Stated Stated `json:"stated,omitzero"`
	// Newest, Parts, From and Recent are of a sliding limit alone, whose total is of all time. Parts are
	// the permits of Out by the part of time in which they may be issued: first those of the part
	// Newest, then those of the one before. From is the part from which on Withheld is over.
	Newest int64   `json:"newest,omitempty"`
	Parts  []int64 `json:"parts,omitempty"`
	From   int64   `json:"from,omitempty"`
	// Recent names the newest transactions of Writes, the newest first: Rule.Nonce of each.
	Recent []uint32 `json:"recent,omitempty"`
	// Carried are permits of other totals that count in this one, and not in Out: those of limits that were
	// replaced until CarriedTo, the latest protocol.Was.Until.
	Carried   []Carried `json:"carried,omitempty"`
	CarriedTo int64     `json:"carried_to,omitempty"`
}

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
	earlierStore = "etcd was restored from a backup, and may have lost what was taken"
	wentBack     = "etcd was restored from a backup (an instance knows of more than it counts)"
	noMark       = "etcd may have been restored from a backup (it has no mark of its own)"
	unreadable   = "its total in etcd cannot be read"
	badMark      = "the mark of the store in etcd cannot be read"
)

// Use is what an instance does with its permits of a window, and what it wants.
type Use struct {
	Used int64 // permits issued in the window
	Need int64 // permits of the largest request that could not be met; 0 if all could
	Rate int64 // permits a second that were issued lately
	Look bool  // nothing is wanted: the total is only read
	// Stated is what the provider has told this instance of the rest, if etcd does not know it yet.
	Stated Stated
}

// Rule is what decides how many permits an instance takes at a time.
type Rule struct {
	Limit     int64 // of the window
	Instances int64 // alive, at least 1
	// Share is how many permits the short limits let this instance issue in a second. It is negative if
	// they let it issue as many as Limit, or if there are none.
	Share int64
	// Now is corrected wall time, in nanoseconds since the Unix epoch.
	Now int64
	// Nonce tells the transaction from all others; 0 if it has no name.
	Nonce uint32
	// Carried and CarriedTo are what the total is to have, if CarriedTo is later than its own.
	Carried   []Carried
	CarriedTo int64
}

// apart: where no short limit bounds them, all instances together may have one in so many of the limit's
// permits in hand without having issued any.
const apart = 100

// Chunk returns the number of permits up to which an instance fills its hand, at least 1. left is how many can
// still be taken, and rate how many it has issued a second lately. It is what the instance can issue in a second:
// Share, or if that is negative rate, and at least an equal part of a hundredth of the limit. It is never more
// than an equal part of what is left, so that the last permits are divided.
func (r Rule) Chunk(left, rate int64) int64 {
	return max(1, min(r.most(rate), left/max(1, r.Instances)))
}

func (r Rule) most(rate int64) int64 {
	if r.Share < 0 {
		return max(r.Limit/apart/max(1, r.Instances), rate)
	}
	return r.Share
}

// more returns how many more permits an instance takes that has hand permits, of the left that can be taken. It
// fills its hand once that is less than half full or holds too few for Use.Need. If Need is more than Chunk and can
// be had, the hand is filled up to Need.
func (r Rule) more(left, hand int64, u Use) int64 {
	if u.Look {
		return 0
	}
	want := r.Chunk(left, u.Rate)
	if u.Need <= left+hand { // otherwise it cannot be had
		want = max(want, u.Need)
	}
	if hand < (want+1)/2 || hand < u.Need && u.Need <= want {
		return max(0, min(left, want-hand))
	}
	return 0
}

// Corrected returns the total after an operator has said how many permits were used in the window. hand is
// how many the instances alive have in hand: they may still issue these, so they count as handed out. What
// instances that are gone had in hand counts no more, and is handed out again. of is the part that runs of a
// sliding limit, in which all of it counts from now on. to is the latest protocol.Was.Until of limits that used has
// the permits of.
func (t Total) Corrected(used, hand, to int64, of protocol.Part, cluster uint64) Total {
	t.Out, t.Withheld, t.Cluster = used+hand, "", cluster
	if of.Sliding() {
		t.Newest, t.Parts, t.From = max(t.Newest, of.Number), []int64{used + hand}, 0
		t.name(0)
	}
	t.Stated, t.Carried, t.CarriedTo = Stated{}, nil, max(t.CarriedTo, to) // the operator knows better
	t.Writes++                                                             // so that nobody takes it for a refusal: Purse.Refused
	return t
}
