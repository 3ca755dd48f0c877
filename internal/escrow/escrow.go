// Package escrow hands the permits of a long window out to instances. It is pure: package
// coordinator reads and writes the keys, and every decision is a function here.
//
// A window of a provider, or of one of its keys, has one total. The provider is the key with the
// empty name. An instance has a Purse for each window of which it takes permits.
package escrow

import (
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
}

type wire[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"budget"`
}

// Encode writes a Total or a Mark as its key's value.
func Encode[T Total | Mark](v T) (string, error) {
	b, err := json.Marshal(wire[T]{quota.Schema, v})
	return string(b), err
}

// MaxBytes bounds a key's value.
const MaxBytes = 4 << 10

// Decode is the reverse of Encode.
func Decode[T Total | Mark](value []byte) (v T, err error) {
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

// reasons why a window is withheld.
const (
	otherCluster = "etcd was restored from a backup (it has another cluster ID)"
	earlierStore = "etcd was restored from a backup, and may have lost what was taken"
	wentBack     = "etcd was restored from a backup (an instance knows of more than it counts)"
	noMark       = "etcd may have been restored from a backup (it has no mark of its own)"
	unreadable   = "its total in etcd cannot be read"
	badMark      = "the mark of the store in etcd cannot be read"
)

// Use is what an instance does with its permits of a window.
type Use struct {
	Used int64 // issued in the window
	Need int64 // permits wanted at once and not had: the largest request, or 0
	Rate int64 // issued in a second, lately
	Look bool  // nothing is wanted: the total is only read
	// Stated is what the provider has told this instance of the rest, if etcd does not know it yet.
	Stated Stated
}

// Rule is what chunks depend on.
type Rule struct {
	Limit     int64
	Instances int64 // alive, at least 1
	// Share is how many permits the instance may issue in a second, by its share of the
	// short limits; negative without a short limit.
	Share int64
	// Now is corrected wall time.
	Now int64
	// Nonce tells the transaction from all others; 0 if it has no name.
	Nonce uint32
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

// more returns how many of the permits that are left an instance takes that has so many in hand.
func (r Rule) more(left, hand int64, u Use) int64 {
	if u.Look {
		return 0
	}
	want := r.Chunk(left, u.Rate)
	if u.Need <= left+hand { // or it cannot be had
		want = max(want, u.Need)
	}
	if hand < (want+1)/2 || hand < u.Need && u.Need <= want {
		return max(0, min(left, want-hand))
	}
	return 0
}

// Corrected returns the total after an operator's word on what was used in the window. What the
// living may still issue of what they have in hand counts too; what others had is lost. of is the
// part that runs of a sliding limit, in which all of it counts from now on.
func (t Total) Corrected(used, hand int64, of protocol.Part, cluster uint64) Total {
	t.Out, t.Withheld, t.Cluster = used+hand, "", cluster
	if of.Sliding() {
		t.Newest, t.Parts, t.From = max(t.Newest, of.Number), []int64{used + hand}, 0
		t.name(0)
	}
	t.Stated = Stated{} // the operator knows better
	t.Writes++          // so that nobody takes it for a refusal: Purse.Refused
	return t
}
