package consumer

import "github.com/quotient-limiter/quotient/internal/window/plans"

// Owner returns the name of the instance that has the limits of the key, where the policy
// gives keys owners, so that work can be sent there. self reports whether this instance has
// permits of the key. If they do not own the key, all instances that see the same fleet
// return the same name, or the incarnation of an instance without a name. Without owners, and
// where no instance has a share, the name is empty and self is true.
//
// A change of the fleet moves few keys. The limits of a key that has moved may settle first.
// Owner does not wait, and after the first call for a key it allocates nothing.
func (y Key) Owner() (name string, self bool) {
	k := y.limiter.core
	s, now := k.segmentNow()
	if s.Keys == nil {
		return "", true
	}
	y.state.mu.Lock()
	defer y.state.mu.Unlock()
	name, elsewhere := y.state.ownerIn(k, s.Keys, now)
	return name, !elsewhere
}

// keyOwner is who owns a key in the windows in: the owner's name, empty where keys have none, and
// whether it is another instance.
type keyOwner struct {
	name      string
	elsewhere bool
	in        *plans.Keys
}

// elsewhereAt reports whether another instance owns the key, and this one does not, at a monotonic instant, if there is no
// news until then.
func (y *keyState) elsewhereAt(k *core, at int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, elsewhere := k.mu.planner.KeyOwner(y.key, at)
	return elsewhere
}

// ownerIn returns an owner of the key in the windows that run, and whether it is another
// instance. The caller has the state's lock.
func (y *keyState) ownerIn(k *core, keys *plans.Keys, now int64) (name string, elsewhere bool) {
	if y.owner == nil {
		y.owner = &keyOwner{}
	}
	if o := y.owner; o.in != keys {
		k.mu.Lock()
		o.name, o.elsewhere = k.mu.planner.KeyOwner(y.key, now)
		k.mu.Unlock()
		o.in = keys
	}
	return y.owner.name, y.owner.elsewhere
}
