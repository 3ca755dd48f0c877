package share

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Listed is what a level's list has for an instance.
func Listed(list []byte, id string) int64 { return demandIn(list, hashID(id)) }

// Counted is how often the history has looked at an instance since its Reset, going over
// all of them.
func (h *History) Counted() int64 { return h.looks }

// SharesOf returns an instance's shares of some windows by the newest view.
func (h *History) SharesOf(id string, windows []quota.Window) []int64 {
	shares, all := make([]int64, len(windows)), crowd{h, h.changes}
	for i, w := range windows {
		shares[i] = newDivision(h.newest(), w, id, all).value(all).Permits
	}
	return shares
}

// Code and Float are the list's numbers.
func Code(demand int64) uint16 { return codeOf(demand) }
func Float(code uint16) int64  { return float(code) }

// FillSeconds is fill for windows of a second, of permits a second.
func FillSeconds(total, floor int64, perSecond []int64) Level {
	var asks []ask
	for _, d := range perSecond {
		if d > 0 {
			asks = counted(asks, 1000*d, 1)
		}
	}
	return fill(total, floor, int64(len(perSecond)), time.Second, asks)
}

// Weighted returns every instance's share of total permits in window w under
// policy p's weights. The shares sum to total exactly. Each ID must occur once;
// their order does not matter. A negative total counts as 0.
func Weighted(total int64, instances []protocol.Instance, p *quota.Policy, w quota.Window) map[string]int64 {
	return (&terms{rules: quota.Policy{Division: quota.Division{Share: quota.ShareWeighted, Weights: p.Weights}}}).split(total, membersOf(instances), seedOf(w))
}

// SeatsBefore returns how many seats of an instance, with v = at/2^64 and a weight, come
// before seat k of another.
func SeatsBefore(id string, at uint64, weight int64, other string, otherAt uint64, otherWeight, k int64) int64 {
	p := part{id, at, weight}
	first := max(0, k-seatsKept+1)
	return p.before(&part{other, otherAt, otherWeight}, first)[k-first]
}

// Equal returns every instance's share of total permits in window w. The
// shares sum to total exactly, and any two differ by at most 1. Each ID must
// occur once; their order does not matter. A negative total counts as 0.
func Equal(total int64, ids []string, w quota.Window) map[string]int64 {
	members := make(map[string]*member, len(ids))
	for _, id := range ids {
		members[id] = &member{stake: stake{id: id, hash: hashID(id)}}
	}
	return (&terms{}).split(total, members, seedOf(w))
}

// String returns the reason in a word, for the messages of tests.
func (r Reason) String() string {
	switch r {
	case ReasonShare:
		return "share"
	case ReasonJoining:
		return "joining"
	case ReasonNoPolicy:
		return "no policy"
	case ReasonPaused:
		return "paused"
	case ReasonUnsupported:
		return "unsupported"
	case ReasonLeft:
		return "left"
	}
	return "unknown"
}
