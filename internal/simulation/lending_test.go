package simulation

import (
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is loans: a host's gate issues permits for a newcomer, the message takes a
// while, comes twice or never, and the newcomer uses them.

// loan is one that was made.
type loan struct {
	host, guest string
	protocol.Loan
}

// lend is the gate's Lent.
func (h *host) lend(guest string, l protocol.Loan) {
	h.loans = append(h.loans, loan{h.id, guest, l})
	from := h.id
	for range 1 + h.r.IntN(2)*h.r.IntN(2) {
		h.call(func(int) {
			for _, g := range h.hosts {
				if g.id == guest || g.keyed(guest) {
					g.answer(func() { g.borrow(guest, from, l) })
				}
			}
		})
	}
}

// keyed reports whether the host has written this incarnation's key, and has not
// listed yet.
func (h *host) keyed(id string) bool { return slices.Contains(h.keys, id) }

// borrow takes a loan, if it is this incarnation's. The watch may tell it again later.
func (h *host) borrow(guest, from string, l protocol.Loan) {
	if h.shut || h.took {
		return
	}
	if h.id != guest || !h.registered {
		if h.keyed(guest) && !h.leaving { // its watch tells it after the listing
			h.at(h.now+5*ms, func() { h.borrow(guest, from, l) })
		}
		return
	}
	n := h.gate.Borrow(h.read(), from, l, h.planner.SharesOf(from, l.Windows))
	h.stats.Borrowed += int(n)
	if n > 0 && h.kind == Calm {
		h.takeUpTo(h.read(), n)
	}
	if h.kind != Calm && h.r.IntN(4) == 0 {
		h.at(h.now+h.r.Int64N(500*ms), func() { h.borrow(guest, from, l) })
	}
}

// stranded is what newcomers were lent of a window and did not use.
func (w *world) stranded(win quota.Window, b *book, part []int64) (n int64) {
	for i, id := range b.ids {
		n += max(0, -w.lentOf(id, win)-part[i])
	}
	return n
}

// lentOf returns what an incarnation has lent of a window, less what it was lent.
func (w *world) lentOf(id string, win quota.Window) (n int64) {
	for _, l := range w.loans {
		if !slices.Contains(l.Windows, win) {
			continue
		}
		if l.host == id {
			n += l.Permits
		}
		if processOf(l.guest) == processOf(id) { // the next incarnation uses what is left
			n -= l.Permits
		}
	}
	return n
}

// processOf is the process of an incarnation.
func processOf(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}
