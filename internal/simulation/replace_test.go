package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is coordinator's option StateDir: a process crashes, and the next one on
// its host continues the incarnation.

// disk is what the processes of a host leave to each other.
type disk struct {
	boot         int // numbers the machine's boots
	checkpoint   *view.Checkpoint
	saved, older *view.Checkpoint // the file, and what it was before; nil: void
	file         []byte           // as the crash left it
	key, same    int64            // revisions of the key's newest write, and of one that changed no share
}

func (d *disk) where() string { return fmt.Sprintf("boot %d", d.boot) }

// newCheckpoint begins the file of an incarnation that has just been listed.
func (h *host) newCheckpoint(m mark) {
	h.checkpoint = &view.Checkpoint{ID: h.id, Created: h.created, Key: h.key, From: h.value.From}
	if m.begin.Revision != 0 {
		h.checkpoint.Positions = []view.Position{m.begin}
	}
	h.save()
}

// keep saves how far the watch is, again and again.
func (h *host) keep() {
	h.at(h.now+100*ms, h.keep)
	h.save()
}

// save writes the file, unless the end was announced: it is void from then on.
func (h *host) save() {
	c := h.checkpoint
	if c == nil || !h.registered || h.relist || h.until != 0 || h.shut || h.tracker.Doubted() || c.ID != h.id {
		return
	}
	if p := h.policy; p != nil {
		c.Reach = int64(p.Settle + protocol.LongestWindow(p) + 2*p.ClockError)
	}
	c.Report = h.reports.Own()
	c.Note(view.Position{At: h.read().Mono, Revision: h.tracker.Position()})
	saved := *c
	saved.Positions = slices.Clone(c.Positions)
	h.older, h.saved = h.saved, &saved
}

// text is the file with a checkpoint; nil if it is void.
func (d *disk) text(c *view.Checkpoint) []byte {
	if c == nil {
		return nil
	}
	text, err := c.Encode(d.where())
	if err != nil {
		panic(err)
	}
	return text
}

// replace crashes a process, whose host starts the next one in its place, with the
// file as the crash left it.
func (h *host) replace(r *rand.Rand) {
	d, leases := h.disk, h.settle()
	d.file = d.text(h.saved)
	switch r.IntN(24) {
	case 0:
		d.file = nil
	case 1:
		if len(d.file) > 0 {
			d.file[r.IntN(len(d.file))] ^= 1 << r.IntN(8)
		}
	case 2:
		d.file = d.text(h.older)
	case 3:
		d.file = d.file[:r.IntN(len(d.file)+1)]
	case 4:
		d.boot++
	}
	if h.trick(OnlyStopped) {
		h.stall(r.Int64N(600 * ms))
	} else {
		h.leaving, h.dead = true, true
		h.world.at(h.now+r.Int64N(4*leases), func() {
			h.lapsed = true
			h.lapse()
		})
	}
	if r.IntN(2) == 0 && h.kind != Measured && len(h.machine.backs) == 0 {
		h.shiftClock(h.osError() * (2*r.Int64N(2) - 1)) // the next process begins with it, at an extreme
	}
	soon := 400 * ms
	if r.IntN(2) == 0 {
		soon = 40 * ms
	}
	// A process that starts while the clock is wrong is wrong itself.
	at := blocked(h.now+r.Int64N(soon), slices.Concat(h.machine.sleeps, h.machine.backs))
	seed := r.Uint64()
	h.world.at(at, func() {
		n := h.newHost(rand.New(rand.NewPCG(seed, 6)), r.IntN(2) == 0)
		n.machine, n.cuts, n.before, n.disk = h.machine, slices.Clip(h.cuts), h, d
		if d.boot != h.boot {
			n.machine.base = n.r.Int64N(1000 * ms) // never before 0, as no process reads it
		}
		n.start()
	})
}

// predecessor returns the checkpoint of the process before, nil if there is none that
// counts.
func (h *host) predecessor() *view.Checkpoint {
	c, err := view.ReadCheckpoint(h.file, h.where(), h.read().Mono)
	if err != nil || h.before == nil || h.before.value.ID != c.ID {
		return nil
	}
	return c
}

// resume continues the incarnation of the process before: it takes the key over to
// its own lease and writes the report, if both are as that process knew them, and
// lists from where that process was. Otherwise it joins as new.
func (h *host) resume(c *view.Checkpoint) {
	h.attempt++
	attempt := h.attempt
	h.took = true // what was lent may be used already
	going := func() bool { return h.attempt == attempt && !h.leaving }
	h.at(h.now+2*retry+h.r.Int64N(100*ms), func() {
		if !h.registered && going() && h.wrote != attempt {
			h.resume(c)
		}
	})
	i := h.before.value
	if h.r.IntN(8) == 0 {
		i.Weight = 1 + h.r.Int64N(3)
	}
	m := mark{id: c.ID, created: c.Created, sent: h.read(), report: h.newReport(c.ID, randomDemand(h.r))}
	life := h.etcd.life
	h.call(func(int) {
		h.etcd.write(func() {
			if h.lapsed || h.etcd.life != life {
				return
			}
			key := h.etcd.key(c.ID)
			same := key != nil && key.Revision == c.Key && h.etcd.reported(c.ID).revision == c.Report
			if same {
				m.revision, m.cluster = h.etcd.commit(change{put: []quota.Instance{i}}), h.etcd.cluster
				m.newest, m.report.revision = m.revision, m.revision
				h.etcd.reports = append(h.etcd.reports, m.report)
				h.keys = append(h.keys, c.ID)
				h.before.keys = slices.DeleteFunc(h.before.keys, func(id string) bool { return id == c.ID })
			} else if key != nil && h.etcd.created(c.ID) == c.Created {
				h.etcd.commit(change{gone: []string{c.ID}}) // nobody uses it any more
			}
			h.answer(func() {
				switch {
				case !going():
				case !same:
					h.join()
				default:
					h.wrote = attempt
					h.continued(c, m, i, going)
				}
			})
		})
	})
}

// continued lists as of where the process before was.
func (h *host) continued(c *view.Checkpoint, m mark, i quota.Instance, going func() bool) {
	key := m.revision
	m.begin, _ = c.Begin(h.started.Mono)
	if i.Weight == h.before.value.Weight {
		h.same = key
	}
	if h.trick(PresentView) {
		m.presentView = true
	}
	h.pages(m, going, func(m mark, keys []view.Key, n int) {
		h.id, h.value, h.registered, h.created, h.key = i.ID, i, true, m.created, key
		if m.begin.Revision != 0 {
			h.stats.Continued++
		}
		h.list(m, keys, n)
		if h.trick(EndTooSoon) {
			h.itself(h.quit)
		}
	})
}

// opens is the instant before whose windows the process before may have issued
// permits.
func (h *host) opens(length time.Duration) int64 {
	if h.before == nil {
		return math.MinInt64
	}
	e := max(2*h.e, int64(2*quota.DefaultClockError))
	return h.started.Mono + e + (e+int64(length))/protocol.DriftBound
}

// void makes the file void: the next write binds the next process, too.
func (h *host) void() {
	h.saved, h.older = nil, nil
}

// sealer is the host and attempt whose key signs an end. A process that continues
// another does not have its key, and seals nothing.
func (h *host) sealer() (name string, attempt int) {
	if h.trick(EndTooSoon) && h.before != nil && h.id == h.before.id {
		return h.before.sealer()
	}
	return h.name, h.wrote
}
