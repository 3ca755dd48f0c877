package share

import "github.com/quotient-limiter/quotient/quota"

// Counted is how often the history has looked at an instance since its Reset, going over
// all of them.
func (h *History) Counted() int64 { return h.looks }

// SharesOf returns an instance's shares of some windows by the newest view.
func (h *History) SharesOf(id string, windows []quota.Window) []int64 {
	shares, all := make([]int64, len(windows)), pastMembers{h, h.changes}
	for i, w := range windows {
		shares[i] = newDivision(h.newest(), w, nil, id, all).value().Permits
	}
	return shares
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
