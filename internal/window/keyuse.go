package window

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// KeyUse is the use of one limit of a key in the window that runs.
type KeyUse struct {
	Length            time.Duration
	Start, End        int64 // corrected wall time, nanoseconds since the Unix epoch
	Bound, Used, Left int64
	// Long is the limit, if its window is above quota.MaxWindow: then Bound is what was taken.
	Long quota.Limit
	// Rest, of it, is what nobody had taken when etcd was read last; negative if it was not.
	Rest int64
	// Withheld says why nothing more of it is handed out; empty if more is.
	Withheld string
}

// Uses returns the use of each limit that binds the key.
func (k *Key) Uses() (all []KeyUse) {
	usable := k.debt == 0 && !k.early && k.keys != nil && !k.keys.Shut
	for a := range k.bounded {
		u := KeyUse{Length: a.window.Length, Start: a.window.Start(), End: a.window.End(), Bound: a.bound, Used: a.used}
		if usable {
			u.Left = max(0, a.bound-a.used-k.reserved)
		}
		all = append(all, u)
	}
	for b := range k.binding {
		u := KeyUse{Length: b.Window, Start: b.Start, End: b.End, Bound: b.purse.Taken, Used: b.used, Long: b.Limit, Rest: b.left(), Withheld: b.purse.Withheld()}
		if usable {
			u.Left = max(0, b.purse.Taken-b.used-k.reserved)
		}
		all = append(all, u)
	}
	return all
}
