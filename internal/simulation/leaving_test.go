package simulation

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// keyOf is the key of a host's incarnation, and idOf its ID.
func keyOf(name string, attempt int) ed25519.PrivateKey {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s.%d", name, attempt))
	return ed25519.NewKeyFromSeed(seed[:])
}

func idOf(name string, attempt int) string {
	public, _ := keyOf(name, attempt).Public().(ed25519.PublicKey)
	return protocol.NewID(fmt.Sprintf("%s.%d", name, attempt), public)
}

// leave announces the end, goes on until then, and gives the key up.
func (h *host) leave(until time.Time) {
	h.leaving = true
	if !h.registered || h.id == "" {
		h.quit()
		return
	}
	if now := time.Unix(0, h.clock.WallAt(h.read().Mono)+1); until.Before(now) {
		until = now
	}
	if h.value.From.After(until) {
		until = h.value.From
	}
	h.until = until.UnixNano()
	h.void()
	bind := func() {
		h.planner.Announce(h.until)
		h.changed()
		h.at(h.now+max(0, h.until-h.clock.WallAt(h.read().Mono)), h.quit)
	}
	if h.trick(BoundWhenAnswered) {
		h.promise(h.until, bind)
		return
	}
	bind()
	h.promise(h.until, func() {})
}

// promise writes a sealed end into the key.
func (h *host) promise(until int64, answered func()) {
	id, value := h.id, h.value
	value.Until = time.Unix(0, until)
	if name, wrote := h.sealer(); idOf(name, wrote) == id {
		protocol.Seal(&value, keyOf(name, wrote))
	}
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.has(id) {
				h.etcd.commit(change{put: []quota.Instance{value}})
				h.sealed = append(h.sealed, value)
				h.answer(answered)
			}
		})
	})
}

// quit stops, says so in the key, and then gives it up.
func (h *host) quit() {
	h.leaving = true
	h.close()
	h.void()
	now := h.clock.WallAt(h.read().Mono) + 1
	switch {
	case h.trick(EndBeforeUse):
		now -= 300 * ms
	case h.trick(EndBySetClock):
		now = h.read().Wall + 1
	}
	again := h.delay()
	now = max(now, h.value.From.UnixNano())
	if h.registered && h.id != "" && (h.until == 0 || h.until > now) {
		h.promise(now, func() {})
		again += h.delay()
	}
	h.world.at(h.now+again, func() {
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
