package quota

import (
	"fmt"
	"time"
)

// Bounds of keys.
const (
	defaultMostKeys = int64(100_000)         // of Keys.Most
	maxMostKeys     = int64(1_000_000)       // of Keys.Most
	maxOwners       = int64(16)              // of Keys.Owners
	minKeyWindow    = 250 * time.Millisecond // of Keys.Limits
)

// Keys has the limits of each single key of a provider, such as an account, a tenant or an
// installation. The instances share them key by key, in fixed windows. A key is a name that
// callers choose; it is not registered anywhere.
type Keys struct {
	// Limits must all admit a permit of a key, beside the provider's own: 1 to 8, each with
	// a window length of its own from 250 ms, shortest first. Of a window of more than MaxWindow
	// the instances take permits from etcd, as of Policy.Limits.
	Limits []Limit
	// Most bounds the keys that one instance has in use: a new name beyond it is refused. 1
	// to 1,000,000; default 100,000.
	Most int64
	// Owners is the number of instances that share the limits of a key equally, to within
	// one permit: its owners, which a hash of its name chooses. The others borrow from them.
	// Up to 16; 0, the default, has all instances share the limits.
	Owners int64
}

// set reports whether there are limits by key.
func (k *Keys) set() bool {
	return len(k.Limits) > 0 || k.Most != 0 || k.Owners != 0
}

func (p *Policy) checkKeys(errs *problems) {
	k := &p.Keys
	if !k.set() {
		return
	}
	if len(k.Limits) == 0 {
		errs.add(true, "keys", "without limits", "set keys.limits too, as in 80/s", "keys.most and keys.owners are of limits by key")
		return
	}
	errs.limits("keys.limits", k.Limits, month)
	for i, l := range k.Limits {
		window := fmt.Sprintf("keys.limits[%d].window", i)
		errs.add(l.Window >= MinWindow && l.Window < minKeyWindow, window, l.Window, "multiply permits and window by the same number", "must be at least %v for keys", minKeyWindow)
	}
	within(errs, "keys.most", k.Most, 1, maxMostKeys, fmt.Sprintf("0 stands for %d", defaultMostKeys))
	within(errs, "keys.owners", k.Owners, 0, maxOwners, "0 stands for all instances")
	errs.add(p.shaped(), "keys.limits", FormatLimits(k.Limits), "set shape fixed", "keys are counted in fixed windows, and shape is %s", p.Shape)
}
