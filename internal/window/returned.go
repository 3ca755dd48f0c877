package window

import "time"

// returned remembers which permits were given back or corrected, by serial number, so
// that none is twice. It remembers them for at least a window's length of the shortest
// limit, after which nothing can be given back, and for two at most.
type returned struct {
	since         int64 // when recent was begun
	recent, older map[uint64]struct{}
}

// first reports whether the permits of that number come for the first time, at the
// ledger's present.
func (r *returned) first(serial uint64, l *ledger) bool {
	length := time.Minute // while no limit is known
	if a := l.shortest(); a != nil {
		length = a.window.Length
	}
	if r.recent == nil || l.now-r.since >= int64(length) {
		r.older, r.recent, r.since = r.recent, map[uint64]struct{}{}, l.now
	}
	if _, twice := r.recent[serial]; twice {
		return false
	}
	if _, twice := r.older[serial]; twice {
		return false
	}
	r.recent[serial] = struct{}{}
	return true
}
