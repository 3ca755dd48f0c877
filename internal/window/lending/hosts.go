package lending

import (
	"cmp"
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Peer is an instance that may lend.
type Peer struct {
	ID   string
	Hash uint64
}

// Debtor is a guest to which permits were lent in this window.
type Debtor struct {
	ID      string
	Permits int64
}

// direct is how many hosts are asked one by one, and the least that any but the poor ask. More, and half of
// all others, are asked by a sample unless the ask is quiet.
const direct = 6

// Request is what one host is asked for; Host is empty if it is a sample.
type Request struct {
	Host string
	protocol.Need
}

// Requests returns whom to ask for what. index is that of the window of the ask: it says who is on duty. peers are the
// others, in any order, and debtors are some of them. salt is another one for each ask.
func (r Rules) Requests(a Ask, fair float64, index int64, salt uint64, peers []Peer, debtors []Debtor) []Request {
	poor, n := float64(a.Poor), len(peers)
	large := poor >= 0.1*fair
	fewest := fewHosts // that the poor ask
	if !large {
		fewest = min(fewHosts, max(1, int(math.Ceil(poor/few)))*(1+a.Fails))
	}
	chosen, others := choose{}, slices.Clone(peers)
	if a.Poor > 0 {
		chosen.take(&others, debtors, fewest)
	}
	owing := len(chosen)
	k := int(min(float64(n), math.Ceil(hosts*float64(a.Permits)/fair*a.Part)))
	switch {
	case a.Poor == 0: // of small shares each host has a permit to spare, or none
		k = max(k, direct)
	case large:
		k = max(k, fewHosts)
	default:
		k = max(0, fewest-owing)
	}
	if a.Whole {
		k = n
	}
	if a.Quiet {
		k = min(k, direct-owing)
	}
	k = min(k, n-owing)
	sample := protocol.Sample{Salt: salt >> 32} // short to write, and enough
	slices.SortFunc(others, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(sample.Rank(a.Hash), sample.Rank(b.Hash)), cmp.Compare(a.ID, b.ID))
	})
	if a.Poor > 0 { // that somebody has a reserve is known
		on := 0
		for _, p := range others {
			if on < min(fewHosts, k) && r.OnDuty(p.Hash, index) {
				chosen[p.ID] = 0
				on++
			}
		}
		others = slices.DeleteFunc(others, func(p Peer) bool { _, there := chosen[p.ID]; return there })
	}
	have := max(1, float64(k)*min(1, fair))  // so many of k have a permit: a share below one is a permit by that chance
	each := 1000 * min(1, slack*a.Part/have) // of what is needed, no more of one host than all of it
	if a.Whole {
		each = 1000
	}
	amount := func(permits float64) int64 {
		return int64(math.Ceil(min(permits*each, 1000*float64(quota.MaxPermits))))
	}
	rest := k - (len(chosen) - owing)
	if len(chosen)+rest <= direct && (2*rest <= len(others) || a.Quiet) {
		for _, p := range others[:rest] {
			chosen[p.ID] = 0
		}
		rest = 0
	}
	need := protocol.Need{
		Permits: amount(float64(a.Permits)), Poor: amount(poor), Critical: amount(float64(a.Critical)), Sure: a.Sure, Large: a.Large, Sample: sample,
	}
	var all []Request
	for id, lent := range chosen {
		q := Request{Host: id, Need: need}
		if lent > 0 {
			part := poor
			if !large && owing > 1 {
				part = poor * 1.5 / float64(owing)
			}
			q.Poor = min(int64(math.Ceil(1000*part)), max(q.Poor, 1000*lent))
			q.Permits = max(q.Permits, q.Poor)
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b Request) int { return cmp.Compare(a.Host, b.Host) })
	if rest > 0 {
		need.Part = uint64(math.Ceil(float64(rest) / float64(len(others)) * (1 << 32)))
		all = append(all, Request{Need: need})
	}
	return all
}

// Standing returns the request for a large call that stands: every host is asked for an equal part of what the
// call wants (Ask.Edge) in the next window, and for as much in this one. hosts is how many other instances have
// shares.
func (r Rules) Standing(a Ask, salt uint64, hosts int) Request {
	part := min(1000*a.Edge/int64(max(1, hosts))+999, 1000*quota.MaxPermits)
	return Request{Need: protocol.Need{Permits: part, Edge: part, Sure: true, Large: true, Sample: protocol.Sample{Salt: salt, Part: 1 << 32}}}
}

// choose are hosts, with what was lent to each.
type choose map[string]int64

// take chooses the largest debtors among the peers, n at most.
func (c choose) take(peers *[]Peer, debtors []Debtor, n int) {
	there := make(map[string]bool, len(*peers))
	for _, p := range *peers {
		there[p.ID] = true
	}
	debtors = slices.DeleteFunc(slices.Clone(debtors), func(d Debtor) bool { return !there[d.ID] || d.Permits <= 0 })
	slices.SortFunc(debtors, func(a, b Debtor) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), cmp.Compare(a.ID, b.ID))
	})
	for _, d := range debtors[:min(n, len(debtors))] {
		c[d.ID] = d.Permits
	}
	*peers = slices.DeleteFunc(*peers, func(p Peer) bool { _, owes := c[p.ID]; return owes })
}
