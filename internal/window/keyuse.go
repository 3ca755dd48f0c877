package window

import "github.com/quotient-limiter/quotient/quota"

// KeyUse is the use of one limit of a key in the window that runs.
type KeyUse struct {
	Window            quota.Window
	Bound, Used, Left int64
}

// Uses returns the use of each limit that binds the key.
func (k *Key) Uses() (all []KeyUse) {
	usable := k.debt == 0 && !k.early && k.keys != nil && !k.keys.Shut
	for i := range k.accounts {
		a := &k.accounts[i]
		if a.bound == Unbounded {
			continue
		}
		u := KeyUse{Window: a.window, Bound: a.bound, Used: a.used}
		if usable {
			u.Left = max(0, a.bound-a.used-k.reserved)
		}
		all = append(all, u)
	}
	return all
}
