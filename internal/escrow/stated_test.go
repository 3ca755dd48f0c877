package escrow

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// From the moment when etcd has what a provider states, no more is handed out than it allowed, but for
// the hundredth of the limit that is not worth writing; until the provider counts anew. So no more is issued
// than that and what instances had in hand then. Others use the same account, and permits are given back:
// those taken since then are left again. The limit changes: by a rest of which the limit was named, and by no other, that
// allows so many more as the limit has been above the provider's at most.
func TestAStatedRestIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &account{cluster: 7}
		all := make([]holder, rapid.IntRange(1, 4).Draw(t, "instances"))
		limit := rapid.Int64Range(1, 500).Draw(t, "limit")
		var taken, back, foreign, used int64 // since the beginning
		var known *Stated                    // by etcd, when takenAt were taken
		var net int64                        // taken since then, less what was given back
		var rest, most int64                 // that may be taken since then, and issued since the beginning but for rest
		now := int64(1000)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 5).Draw(t, "later")
			h := &all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			r := Rule{Limit: limit, Instances: int64(len(all)), Share: rapid.Int64Range(-1, 50).Draw(t, "share"), Now: now}
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 7:
				if limit = rapid.Int64Range(1, 500).Draw(t, "limit"); known != nil && known.Of != 0 {
					rest = max(rest, known.Left+max(0, limit-max(known.Of, known.Limit)))
				}
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
					use.Stated = Stated{Left: max(0, limit-foreign-used), Until: now + rapid.Int64Range(0, 30).Draw(t, "until"), Limit: limit}
					use.Stated.Of = rapid.SampledFrom([]int64{0, limit, 100, 300}).Draw(t, "of")
				}
				before := ReadTotal(s.value, s.cluster)
				next, n, ok := h.write(s, r, use, Back{})
				if !ok {
					break
				}
				if before.Stated.At = next.Stated.At; next.Stated != before.Stated {
					known = nil
					if next.Stated.Until != 0 {
						known, net, rest, most = &next.Stated, 0, next.Stated.Left, used
						for i := range all {
							most += all[i].purse.Taken - all[i].used
						}
						most -= n // which are of the rest
					}
				}
				taken, net = taken+n, net+n
			}
			if known != nil && now < known.Until && (net > rest || used > most+rest) {
				t.Fatalf("%d were taken since the provider said that %+v, of %d; %d of %d are issued", net, known, rest, used, most+rest)
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

// What was used elsewhere stays used where an operator changes the limit as the provider does: so many more or fewer
// are left. A limit that stays below the provider's says nothing of that, nor does any of a rest of which no limit is
// known. It is never more than the limit leaves.
func TestAStatedRestMovesWithTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of, limit, rest int64 // what is stated, and our limit then
		out             int64 // taken before, and as many again since
		next, left      int64 // another limit, and what it leaves
	}{
		{5000, 5000, 831, 100, 5000, 731},
		{5000, 5000, 831, 100, 10_000, 5731}, // both are raised
		{5000, 5000, 0, 0, 10_000, 5000},
		{5000, 5000, 831, 100, 4900, 631}, // both are lowered
		{5000, 5000, 831, 100, 4000, 0},
		{5000, 1000, 831, 100, 2000, 731}, // ours stays below the provider's
		{5000, 1000, 831, 100, 500, 300},
		{5000, 1000, 831, 100, 6000, 1731}, // until it is above
		{5000, 10_000, 831, 100, 20_000, 10_731},
		{5000, 10_000, 831, 100, 5000, 731}, // ours was above, and follows
		{5000, 10_000, 831, 100, 4900, 631},
		{0, 5000, 831, 100, 10_000, 731}, // nobody knows of which limit
		{0, 5000, 831, 100, 800, 600},
		{5000, 5000, 5000, 100, 10_000, 9800},
	} {
		s := &account{cluster: 7}
		var h holder
		take := func(limit, n int64, stated Stated) {
			for _, u := range []Use{{Used: h.used, Look: true, Stated: stated}, {Used: h.used, Need: n}} {
				if n > 0 || u.Look {
					h.write(s, Rule{Limit: limit, Instances: 1, Share: n, Now: 1}, u, Back{})
				}
			}
			h.used = h.purse.Taken
		}
		take(c.limit, c.out, Stated{})
		take(c.limit, c.out, Stated{Left: c.rest, Until: 9, Of: c.of, Limit: c.limit})
		if out := h.purse.Out(); out != 2*c.out {
			t.Fatalf("%+v: %d are taken", c, out)
		}
		if left := h.purse.Left(c.next); left != c.left {
			t.Errorf("%+v: %d are left", c, left)
		}
		if left := h.purse.Left(c.limit); left != max(0, min(c.limit-2*c.out, c.rest-c.out)) {
			t.Errorf("%+v: %d are left by the limit of then", c, left)
		}
	}
}

// Answers come out of order, so a higher rest of the same limit changes nothing. One of the limit that is in force is
// news where the rest before it was of another limit in the same hour: the provider has changed its limit since.
func TestAStatedRestOfANewLimit(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute)
	const hour, later = 9 * minute, 12 * minute
	for _, c := range []struct {
		name        string
		before, now Stated
		limit       int64
		counts      bool
	}{
		{"of the same limit", Stated{Left: 800, Until: hour, Of: 10_000}, Stated{Left: 5700, Until: hour, Of: 10_000}, 10_000, false},
		{"of the limit that is in force", Stated{Left: 800, Until: hour, Of: 5000}, Stated{Left: 5700, Until: hour, Of: 10_000}, 10_000, true},
		{"whose end is rounded otherwise", Stated{Left: 800, Until: hour, Of: 5000}, Stated{Left: 5700, Until: hour + minute, Of: 10_000}, 10_000, true},
		{"in another hour, as of another resource", Stated{Left: 0, Until: hour, Of: 30}, Stated{Left: 5700, Until: later, Of: 10_000}, 10_000, false},
		{"of a limit that is not in force", Stated{Left: 800, Until: hour, Of: 5000}, Stated{Left: 5700, Until: hour, Of: 15_000}, 10_000, false},
		{"after a rest of no limit, as of a pause", Stated{Left: 0, Until: hour}, Stated{Left: 5700, Until: hour, Of: 10_000}, 10_000, false},
		{"of no limit", Stated{Left: 800, Until: hour, Of: 5000}, Stated{Left: 5700, Until: hour}, 10_000, false},
	} {
		s := &account{cluster: 7}
		var h holder
		c.before.Limit, c.now.Limit = c.limit, c.limit
		left := c.before.Left
		for _, stated := range []Stated{c.before, c.now} {
			if h.read(s); stated == c.now && h.purse.Heeds(stated, c.limit) != c.counts {
				t.Errorf("%s: the instance heeds it: %v", c.name, !c.counts)
			}
			h.write(s, Rule{Limit: c.limit, Instances: 1, Share: -1, Now: 1}, Use{Look: true, Stated: stated}, Back{})
		}
		if c.counts {
			left = c.now.Left
		}
		if got := h.purse.Left(c.limit); got != left {
			t.Errorf("%s: %d are left, want %d", c.name, got, left)
		}
	}
}
