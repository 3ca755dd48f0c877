package escrow

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// From the moment when etcd has what a provider states, no more is handed out than it allowed, but for
// the hundredth of the limit that is not worth writing; until the provider counts anew. So no more is issued
// than that and what instances had in hand then. Others use the same account, and permits are given back:
// those taken since then are left again.
func TestAStatedRestIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &account{cluster: 7}
		all := make([]holder, rapid.IntRange(1, 4).Draw(t, "instances"))
		limit := rapid.Int64Range(1, 500).Draw(t, "limit")
		var taken, back, foreign, used int64 // since the beginning
		var known *Stated                    // by etcd, when takenAt were taken
		var net int64                        // taken since then, less what was given back
		var most int64                       // that may be issued since the beginning
		now := int64(1000)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 5).Draw(t, "later")
			h := &all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			r := Rule{Limit: limit, Instances: int64(len(all)), Share: rapid.Int64Range(-1, 50).Draw(t, "share"), Now: now}
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				foreign += rapid.Int64Range(0, limit).Draw(t, "others use")
			case 1:
				n := rapid.Int64Range(0, h.purse.Taken-h.used).Draw(t, "issued")
				h.used, used = h.used+n, used+n
			case 2:
				n := rapid.Int64Range(0, h.purse.Taken-h.used).Draw(t, "back")
				h.purse.Taken -= n
				was := s.out()
				h.giveBack(s, r, n, func() int { return 1 }, func(message) {})
				back += was - s.out()
				net = max(0, net-(was-s.out()))
			default:
				use := Use{Used: h.used, Need: rapid.Int64Range(0, 100).Draw(t, "need")}
				if rapid.Bool().Draw(t, "states") {
					use.Stated = Stated{Left: max(0, limit-foreign-used), Until: now + rapid.Int64Range(0, 30).Draw(t, "until")}
				}
				before := ReadTotal(s.value, s.cluster)
				next, n, ok := h.write(s, r, use, Back{})
				if !ok {
					break
				}
				if next.Stated.Until != before.Stated.Until || next.Stated.Left != before.Stated.Left {
					known = nil
					if next.Stated.Until != 0 {
						known, net, most = &next.Stated, 0, used+next.Stated.Left
						for i := range all {
							most += all[i].purse.Taken - all[i].used
						}
						most -= n // which are of the rest
					}
				}
				taken, net = taken+n, net+n
			}
			if known != nil && now < known.Until && (net > known.Left || used > most) {
				t.Fatalf("%d were taken since the provider said that %d are left, %d of %d are issued", net, known.Left, used, most)
			}
			if total := ReadTotal(s.value, s.cluster); total.Out != taken-back {
				t.Fatalf("%+v, want %d", total, taken-back)
			}
		}
	})
}

// All that the provider says is left is had; when it counts anew, so is the rest of the limit. A higher
// rest, and one that differs by little, changes nothing.
func TestAStatedRestIsHad(t *testing.T) {
	t.Parallel()
	s := &account{cluster: 7}
	var h holder
	r := Rule{Limit: 1000, Instances: 1, Share: -1, Now: 100}
	take := func(stated Stated) {
		for range 200 {
			if _, _, ok := h.write(s, r, Use{Used: h.used, Need: 1, Stated: stated}, Back{}); !ok {
				return
			}
			h.used = h.purse.Taken
		}
		t.Fatal("there is no end")
	}
	has := func(want int64) {
		t.Helper()
		if h.used != want {
			t.Errorf("%d were had, want %d", h.used, want)
		}
	}
	s.value = nil
	take(Stated{Left: 300, Until: 200})
	has(300)
	take(Stated{Left: 700, Until: 250})
	take(Stated{})
	has(300)
	if left := h.purse.Left(1000); left != 0 || !h.purse.Binds(1000) {
		t.Errorf("%d are left", left)
	}
	r.Now = 200
	take(Stated{Left: 691, Until: 250})
	has(1000)
	if h.purse.total.Stated != (Stated{}) {
		t.Errorf("%+v was written for a hundredth", h.purse.total.Stated)
	}
}

// What instances have in hand moves from part to part of a sliding limit, and uses up no rest: all that the
// provider says is left is had.
func TestAMoveUsesUpNoStatedRest(t *testing.T) {
	t.Parallel()
	s := &account{cluster: 7}
	var h holder
	of := protocol.Part{Number: 1000, Counted: 102}
	h.purse.Part = of
	r := Rule{Limit: 200, Instances: 1, Share: 20, Now: 100}
	issued := int64(8) // by others
	for range 90 {
		h.write(s, r, Use{Used: h.used, Need: 1, Stated: Stated{Left: 200 - issued, Until: 1 << 60}}, Back{})
		if h.purse.Taken > h.used {
			h.used, issued = h.used+1, issued+1
		}
		back := Back{N: h.purse.Taken - h.used, Of: of}
		of.Number++
		h.purse, h.used = h.purse.In(of), 0
		h.write(s, r, Use{Need: 1}, back)
	}
	if issued < 98 {
		t.Errorf("%d of 200 are used in 90 parts of which each used one", issued)
	}
}

// A provider's count that an operator gives lowers what is left, takes nothing out, and is replaced by the next one. In
// a total of another cluster, for which he has vouched, nothing is withheld after it.
func TestACountIsReplaced(t *testing.T) {
	t.Parallel()
	for _, of := range []protocol.Part{{}, {Number: 50, Counted: 10}} {
		p := Purse{Part: of}
		known := Total{Limit: 50, Cluster: 1, Withheld: otherCluster}
		known.add(7, of)
		if of.ByParts() {
			known.From = of.Number + of.Counted + 1
		}
		revision, v := int64(3), &Verdict{Cluster: 2, Told: 4}
		for _, c := range []struct{ used, left int64 }{{60, 0}, {50, 0}, {30, 20}, {7, 43}, {3, 43}, {49, 1}} {
			known = known.Counted(c.used, 50, 1000, of, v.Cluster)
			text, err := Encode(known)
			if err != nil {
				t.Fatal(err)
			}
			revision++
			if p.Read([]byte(text), revision, v); p.Withheld() != "" || p.Left(50) != c.left || p.Out() != 7 {
				t.Errorf("%+v: %d used: %q, %d left, %d out", of, c.used, p.Withheld(), p.Left(50), p.Out())
			}
		}
		if next, n, ok := p.Next(Rule{Limit: 50, Share: 50, Now: 999}, Use{}, Back{}, v); !ok || n != 1 || next.Out != 8 {
			t.Errorf("%+v: %d taken, %+v", of, n, next)
		}
		if next, n, ok := p.Next(Rule{Limit: 50, Share: 50, Now: 1000}, Use{}, Back{}, v); !ok || n != 43 || next.Out != 50 {
			t.Errorf("%+v, when the count is over: %d taken, %+v", of, n, next)
		}
	}
}
