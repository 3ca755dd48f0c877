package escrow

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The model of a limit in flight: a hold of four parts, so six of them count. The history is that of a sliding limit,
// but for what instances do: they begin calls, end them, and move what has come back of earlier parts.
const modelHold = 4 * modelPart

// call is one that is open.
type call struct {
	by    *slider
	store int
	part  int64
	until int64 // true time by which it is over
}

type flying struct {
	sliding
	open         []call
	begun, moved int
	way          int64 // of the end of a call to the provider, at most
}

func (h *flying) step(restores bool) {
	i := h.r.IntN(len(h.all))
	p := h.all[i]
	h.now += h.r.Int64N(4)
	h.open = slices.DeleteFunc(h.open, func(c call) bool { return c.until <= h.now })
	h.enter(p)
	if p.idle == nil {
		p.idle = map[int64]int64{}
	}
	has := p.purse.Taken - p.used
	for _, n := range p.idle {
		has += n
	}
	for _, c := range h.open {
		if c.by == p && c.store == p.store {
			has++
		}
	}
	use := Use{By: uint64(i + 1), Has: has, Need: h.r.Int64N(4), Rate: h.r.Int64N(4)}
	back := Back{}
	for number, n := range p.idle { // one of them, by chance
		if n > 0 && h.r.IntN(2) == 0 {
			of := p.purse.Part
			of.Number = number
			back = Back{n, of}
			break
		}
	}
	switch k := h.r.IntN(100); {
	case k < 35:
		if back.N > 0 {
			delete(p.idle, back.Of.Number)
			h.moved++
		}
		h.act(p, use, back)
	case k < 60:
		if n := min(p.purse.Taken-p.used, 1+h.r.Int64N(4)); n > 0 {
			p.used += n
			ends := (p.purse.Part.Number+1)*modelPart + p.shift + modelHold - p.off + h.way // by its clock, which may be set
			ends = max(ends, (p.purse.Part.Number+1)*modelPart+p.shift+modelHold+modelError+h.way)
			for range n {
				h.open = append(h.open, call{p, p.store, p.purse.Part.Number, ends})
				h.begun++
			}
			h.note("%d begin of part %d", n, p.purse.Part.Number)
		}
	case k < 78:
		j := slices.IndexFunc(h.open, func(c call) bool { return c.by == p && h.r.IntN(2) == 0 })
		if j < 0 {
			return
		}
		c := h.open[j]
		h.open = slices.Delete(h.open, j, j+1)
		switch {
		case c.part == p.purse.Part.Number && p.used > 0 && c.store == p.store:
			p.used--
		case c.store == p.store:
			p.idle[c.part]++
		}
		h.note("a call of part %d ends", c.part)
	case k < 82:
		use.Look = true
		if back.N > 0 {
			delete(p.idle, back.Of.Number)
		} else if back = (Back{p.purse.Taken - p.used, p.purse.Part}); back.N > 0 {
			p.purse.Taken = p.used
		}
		if back.N > 0 {
			h.act(p, use, back)
		}
	default:
		h.happens(p, k, restores)
	}
}

// At no time more calls are open than the limit says, those of instances that crashed included, which are over by
// the end of their permits: with the same faults as a sliding limit, and whatever instances ask each other for.
func TestNeverMoreCallsInFlight(t *testing.T) {
	t.Parallel()
	for _, restores := range []bool{false, true} {
		var begun, moved, full int
		var after int64
		for seed := range uint64(500) {
			h := &flying{sliding: sliding{counted: 6, r: rand.New(rand.NewPCG(seed, 5)), s: &store{marked: marked{cluster: 1, next: 1, revision: 1}}, now: 1000}}
			h.s.write(Mark{Cluster: 1})
			h.limit = 1 + h.r.Int64N(12)
			h.way = h.r.Int64N(2) * modelCall
			for range 1 + h.r.IntN(3) {
				h.all = append(h.all, &slider{off: h.r.Int64N(2*modelError+1) - modelError, shift: h.r.Int64N(modelPart - 2*modelError - h.way)})
			}
			reached := false
			for range 250 {
				h.step(restores)
				if int64(len(h.open)) > h.limit {
					t.Fatalf("seed %d: %d calls are open of %d\n%s", seed, len(h.open), h.limit, strings.Join(h.log, "\n"))
				}
				reached = reached || int64(len(h.open)) == h.limit
			}
			if begun, moved = begun+h.begun, moved+h.moved; reached {
				full++
			}
			after += h.taken
		}
		t.Logf("restores %v: %d calls, %d moves, %d histories reached the limit, %d taken after a restore", restores, begun, moved, full, after)
		if full < 50 || moved < 500 || restores && after == 0 {
			t.Error("nothing was tested")
		}
	}
}
