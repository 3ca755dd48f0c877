package lending

import "math"

// Host is what an instance has when it is asked. Its numbers are permits, but where another unit is named.
type Host struct {
	Phase, Length float64 // how much of the window has passed, and its length, in milliseconds
	Share         int64   // its own part of the window
	Issued        int64   // to its own callers in this window
	Left          int64   // that may be issued or lent
	Kept          int64   // those of Left that only its own critical calls get
	Forecast      float64 // that its own callers will want until the window ends
	Critical      float64 // that its own critical callers will want until then
	Part          int64   // of its share, that a guest without one may have, whatever own callers want
	Uneven        bool    // some instances have no share, since a key has owners, or the total is below the fleet
	Sure          bool    // the guest will use what it is lent: see protocol.Need
	Duty          bool    // it is on duty in this window: see Rules.Duty
	Chance        uint64  // a random number: another one for each instance and window
}

// Lend returns how many of the permits asked for the host lends, where Kept always stays:
//
//   - of all, what is left beside what its own callers will want and the reserve; if some instances have no
//     share, the guest's part (split) where that is more;
//   - of poor, those that the guest lacks to its fair share, what is left beside what its own callers will want
//     of its share, and Part at least;
//   - of critical, those that the guest's critical calls lack, what is left beside what its own critical callers
//     will want.
//
// It is the largest of these.
func (h *Host) Lend(r Rules, permits, poor, critical int64) int64 {
	n := min(permits, h.spare(max(h.Forecast, h.reserve(r))))
	if h.Uneven {
		n = max(n, h.split(r, permits))
	}
	if poor > 0 {
		// Against the poor a host protects what is left of its own fair share only.
		n = max(n, min(poor, h.spare(min(h.Forecast, float64(max(0, h.Share-h.Issued))))), min(poor, h.Part, h.spare(0)))
	}
	return max(0, n, min(critical, h.spare(h.Critical)))
}

// spare returns what is left besides what the host keeps, which is never less than what the
// policy keeps for critical calls. Of a small share a fraction of a permit may be all that it has. So there it
// rounds to the nearest permit; but it keeps one for a call that may come, if one of the guest's may as well not come.
func (h *Host) spare(keep float64) int64 {
	n := math.Ceil(keep)
	if h.Share < few {
		n = math.Ceil(keep - 0.5)
		if !h.Sure && keep > 0 {
			n = max(1, n)
		}
	}
	return max(0, h.Left-max(h.Kept, int64(n)))
}

// split returns the guest's part of what the host has beyond its own share, which both then divide by what they still
// want: the guest permits, the host what its own callers will want beyond the share. Otherwise the first guest that asks
// could borrow all that the others have, and keep it from the second: it would have some left when the window ends. A tiny
// share is divided too, but for the reserve.
func (h *Host) split(r Rules, permits int64) int64 {
	own := float64(max(0, h.Share-h.Issued))
	if h.Share < sparse {
		own = min(own, h.reserve(r))
	}
	beyond, wanted := float64(h.Left)-max(own, float64(h.Kept)), max(0, h.Forecast-own)
	return int64(min(1, max(0, beyond)/max(1, float64(permits)+wanted)) * float64(permits))
}

// reserve is what a host keeps for instances that wake. Of a small share a whole permit is
// kept in some windows, not in all.
func (h *Host) reserve(r Rules) float64 {
	if h.Duty {
		if h.Length-h.Phase > ahead {
			return float64(h.Share)
		}
		return 0
	}
	return float64(whole(r.Reserve*float64(h.Share)*max(0, 1-(h.Phase+ahead)/h.Length), h.Chance))
}

// Part returns which part of a host's share a joiner will have when it has one of its own: the
// share is then divided among one more. Less than one permit is one by chance.
func Part(share int64, instances int, chance uint64) int64 {
	return whole(float64(share)/float64(max(1, instances)), chance)
}

// Late is how long before a window's end nothing is kept for instances that wake.
const Late = ahead

// Released returns how many of these moments have passed.
func Released(phase, length float64) int {
	switch {
	case phase >= length-ends2:
		return 2
	case phase >= length-ends:
		return 1
	}
	return 0
}

// Releases returns when in a window, after the phase, a host next looks at the asks that
// stand: what was not given is asked for again when reserves are released. ok is false if it
// does not any more.
func Releases(phase, length float64) (at float64, ok bool) {
	for _, at := range []float64{length - ends, length - ends2} {
		if phase < at {
			return at, true
		}
	}
	return 0, false
}
