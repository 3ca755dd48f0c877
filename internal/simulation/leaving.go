package simulation

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// leave announces the end, goes on until then, and gives the key up.
func (h *host) leave(until time.Time) {
	h.leaving = true
	if !h.registered || h.id == "" {
		h.quit()
		return
	}
	if h.value.From.After(until) {
		until = h.value.From
	}
	h.until = until.UnixNano()
	h.planner.Announce(h.until)
	h.changed()
	id, value := h.id, h.value
	value.Until = until
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.has(id) {
				h.etcd.commit(change{put: []quota.Instance{value}})
			}
		})
	})
	h.at(h.now+max(0, h.until-h.clock.WallAt(h.read().Mono)), h.quit)
}

// quit stops, and then gives the key up.
func (h *host) quit() {
	h.leaving = true
	h.close()
	h.world.at(h.now+h.delay(), func() {
		h.lapsed = true
		h.lapse()
	})
	h.dead = true
}

// lapse removes the keys under the host's lease, also those whose transaction
// was never answered.
func (h *host) lapse() {
	h.etcd.write(func() {
		if gone := slices.DeleteFunc(h.keys, func(id string) bool { return !h.etcd.has(id) }); len(gone) > 0 {
			h.etcd.commit(change{gone: gone})
		}
		h.keys = nil
	})
}
