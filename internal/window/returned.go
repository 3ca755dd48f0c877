package window

import "time"

// returned remembers which permits were given back or corrected, by serial number, so
// that none is twice. It remembers them for at least a window's length of the shortest
// limit, after which nothing can be given back, and for two at most; of calls in flight for as long
// as they may be known.
type returned struct {
	since         int64 // when recent was begun
	recent, older serialSet
}

// serialSet is a set of serial numbers, one bit for each. They are consecutive, so most bits
// of a page are used.
type serialSet map[uint64][pageBits / 64]uint64

// pageBits is how many serial numbers share a page.
const pageBits = 512

func (m serialSet) has(serial uint64) bool {
	page, there := m[serial/pageBits]
	return there && page[serial%pageBits/64]>>(serial%64)&1 == 1
}

func (m serialSet) add(serial uint64) {
	page := m[serial/pageBits]
	page[serial%pageBits/64] |= 1 << (serial % 64)
	m[serial/pageBits] = page
}

// first reports whether the permits of that number come for the first time, at the
// ledger's present.
func (r *returned) first(serial uint64, l *ledger) bool {
	length := time.Minute // while no limit is known
	if a := l.shortest(); a != nil {
		length = a.Window.Length
	}
	length = max(length, l.longestInFlight())
	if r.recent == nil || l.now-r.since >= int64(length) {
		r.older, r.recent, r.since = r.recent, serialSet{}, l.now
	}
	if r.recent.has(serial) || r.older.has(serial) {
		return false
	}
	r.recent.add(serial)
	return true
}
