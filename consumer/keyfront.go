package consumer

import (
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
)

// hold takes the state's lock and shuts the front: the account then counts all that calls had of it.
// Whoever looks at the account takes the lock so.
func (y *keyState) hold(m *keys) {
	y.mu.Lock()
	if issued, refused := y.front.Shut(&y.use); issued > 0 || refused > 0 {
		y.note(m, issued, refused)
	}
}

// open lets the next calls take permits without the lock, as many as the busiest keys need not hear of yet.
// The caller has the state's lock, and has taken permits of the segment by whose windows the account is. If
// others are to be asked for some, they are.
func (y *keyState) open() {
	if y.line == nil { // or a newcomer would overtake
		y.front.Open(&y.use, noteBatch-int64(y.issued)-int64(y.refused))
	}
}

// uncharge takes n permits of a key out again for which the provider had none.
func (k *core) uncharge(y *keyState, part window.Part, keys *plans.Keys, n int64) {
	y.hold(&k.keys)
	y.use.Uncharge(n, part.Epoch(), &keys.Windows)
	y.tellBooked(&k.keys)
	y.mu.Unlock()
	k.keys.busiest.Add(y.key.Name, -n, 0)
	k.keys.lines.serve(k, y)
}
