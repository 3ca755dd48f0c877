package share

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The list of demands in a level: six bytes for each instance that asks for anything,
// in ascending order. Four are a hash of its ID. Two are its demand: a floating-point
// number with a mantissa of ten bits, rounded up by 0.1% at most. Two instances with
// the same hash have one demand. All bytes are a list: one that nobody would write says
// something else, but the same to everybody.

const listed = 6 // bytes of an instance

// MostListed is how many demands an entry lists, those of the largest.
const MostListed = 2048

// tagOf is the part of an ID's hash that stands in the list.
func tagOf(hash uint64) uint32 { return uint32(mix(hash) >> 32) }

// demandIn returns the demand that the list has for an instance.
func demandIn(list []byte, hash uint64) int64 {
	tag := tagOf(hash)
	n := len(list) / listed
	i := sort.Search(n, func(i int) bool { return binary.BigEndian.Uint32(list[i*listed:]) >= tag })
	if i == n || binary.BigEndian.Uint32(list[i*listed:]) != tag {
		return 0
	}
	return float(binary.BigEndian.Uint16(list[i*listed+4:]))
}

// float is the number that a code of the list stands for.
func float(code uint16) int64 {
	e, m := code>>10, int64(code&1023)
	switch {
	case e == 0:
		return m
	case e > 50:
		return protocol.MaxDemand
	}
	return min((1024+m)<<(e-1), protocol.MaxDemand)
}

// codeOf is the least code that stands for at least this demand.
func codeOf(demand int64) uint16 {
	demand = min(max(demand, 0), protocol.MaxDemand)
	if demand < 1024 {
		return uint16(demand)
	}
	e := bits.Len64(uint64(demand)) - 10 // from 1 on
	m := (demand + 1<<(e-1) - 1) >> (e - 1)
	return uint16(int64(e)<<10 + m - 1024) // where m is 2048 that carries into e
}

// listOf lists demands, by ID.
func listOf(demands map[string]int64) []byte {
	type entry struct {
		tag  uint32
		code uint16
	}
	all := make([]entry, 0, len(demands))
	for id, d := range demands {
		if d > 0 {
			all = append(all, entry{tagOf(hashID(id)), codeOf(d)})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(b.code, a.code), cmp.Compare(a.tag, b.tag)) })
	all = all[:min(len(all), MostListed)]
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.tag, b.tag) })
	all = slices.CompactFunc(all, func(a, b entry) bool { return a.tag == b.tag }) // the larger demand stays
	list := make([]byte, 0, listed*len(all))
	for _, x := range all {
		list = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(list, x.tag), x.code)
	}
	return list
}
