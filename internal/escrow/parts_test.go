package escrow

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The model of a sliding limit: a window of three parts, so five of them count. Clocks are off by up to
// modelError, and a call takes up to modelCall to the provider: twice the former and the latter are less
// than a part.
const (
	modelPart   = int64(10)
	modelParts  = 3
	modelWindow = modelParts * modelPart
	modelError  = int64(2)
	modelCall   = int64(5)
)

// slider is an instance of the model.
type slider struct {
	purse     Purse
	used      int64
	old       Back  // what is left of earlier parts, of the newest of them
	off       int64 // its clock's error
	seen      uint64
	mark      MarkAt
	elsewhere int64
	// Of a limit in flight: by how much later its parts begin, what is idle of earlier ones, and how often
	// it was in another store.
	shift int64
	idle  map[int64]int64
	store int
}

// sliding plays one history of a sliding limit.
type sliding struct {
	r        *rand.Rand
	s        *store
	backup   *store
	all      []*slider
	late     []*sent
	limit    int64
	counted  int64 // parts
	now      int64
	arrivals []int64
	log      []string
	taken    int64 // after a restore
	restored bool
}

func (h *sliding) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf("%d: ", h.now)+fmt.Sprintf(format, args...))
}

func (h *sliding) partOf(p *slider) protocol.Part {
	return protocol.Part{Number: (h.now + p.off - p.shift) / modelPart, Counted: h.counted}
}

// enter brings an instance to the part that runs by its clock, and to the store that answers.
func (h *sliding) enter(p *slider) {
	if of := h.partOf(p); of.Number > p.purse.Part.Number || p.purse.Part.Counted == 0 {
		if hand := p.purse.Taken - p.used; hand > 0 {
			p.old = Back{hand, p.purse.Part}
			if p.idle != nil {
				p.idle[p.purse.Part.Number] += hand
			}
		}
		p.purse, p.used = p.purse.In(of), 0
	}
	if p.seen != h.s.cluster {
		if p.seen != 0 {
			p.elsewhere = h.now
			p.store++
			clear(p.idle)
		}
		p.seen, p.purse.Taken, p.old = h.s.cluster, p.used, Back{}
	}
	if _, renew := p.mark.Renewed(p.elsewhere, 0, time.Duration(modelError)); p.mark.AnsweredBy == h.s.cluster && !renew {
		return
	}
	p.mark = h.s.read()
	if next, renew := p.mark.Renewed(p.elsewhere, h.now+p.off, time.Duration(modelError)); renew {
		h.s.write(next)
		p.mark = h.s.read()
		h.note("mark %+v", next)
	}
}

// act takes permits, moves those of earlier parts, or with Look only gives back.
func (h *sliding) act(p *slider, use Use, back Back) {
	rule := Rule{Limit: h.limit, Instances: int64(len(h.all)), Share: h.r.Int64N(12) - 1}
	known := false
	for range 4 {
		rule.Nonce = h.r.Uint32() * h.r.Uint32N(4) // as often as not none, or one of few
		if h.r.IntN(3) == 0 {
			rule.Nonce = h.r.Uint32N(4)
		}
		of := p.purse.Part
		store := p.mark.Of((of.Number-of.Counted-1)*modelPart, false)
		if !p.purse.Of(store) {
			p.purse, back = Purse{Taken: p.used, Part: of}, Back{}
		}
		use.Used = p.used
		next, n, ok := p.purse.Next(rule, use, back, store)
		if !ok && known {
			return
		}
		committed := false
		if ok && (known || back.N == 0) {
			x := &sent{"", next, p.purse.Revision(), p.mark.Revision, back.N > 0}
			fate := h.r.IntN(8)
			if back.N > 0 && h.r.IntN(2) == 0 {
				fate = 3
			}
			switch fate {
			case 0:
				h.note("%+v lost", *x)
				return
			case 1:
				h.late = append(h.late, x)
				h.note("%+v late", *x)
				return
			case 2:
				h.note("%+v unanswered, %v", *x, h.s.commit(x))
				return
			case 3:
				h.note("%+v twice, %v", *x, h.s.commit(x))
				committed = h.s.commit(x)
			case 4:
				if o := h.all[h.r.IntN(len(h.all))]; o != p {
					h.enter(o)
					other := o.purse
					if next, n, ok := other.Next(rule, Use{Used: o.used, Need: 1}, Back{}, o.mark.Of((other.Part.Number-other.Part.Counted-1)*modelPart, false)); ok && other.Of(o.mark.Of(0, false)) && h.s.commit(&sent{next: next, total: other.Revision(), mark: o.mark.Revision}) {
						o.purse.Committed(next, n, h.s.revision, o.mark.Of(0, false))
					}
				}
				fallthrough
			default:
				committed = h.s.commit(x)
				h.note("%+v %v", *x, committed)
			}
		}
		if committed {
			p.purse.Committed(next, n, h.s.revision, store)
			if h.restored {
				h.taken += max(0, n)
			}
			return
		}
		p.mark = h.s.read()
		never := p.purse.Refused(next, h.s.total, h.s.totalAt, p.mark.Of((of.Number-of.Counted-1)*modelPart, false))
		if known && back.N > 0 && !never {
			back = Back{}
		}
		known = true
	}
}

func (h *sliding) step(restores bool) {
	p := h.all[h.r.IntN(len(h.all))]
	h.now += h.r.Int64N(3)
	h.enter(p)
	switch k := h.r.IntN(100); {
	case k < 40:
		back := p.old
		p.old = Back{}
		h.act(p, Use{Need: h.r.Int64N(4), Rate: h.r.Int64N(4)}, back)
	case k < 75:
		if n := min(p.purse.Taken-p.used, 1+h.r.Int64N(4)); n > 0 {
			p.used += n
			for range n {
				h.arrivals = append(h.arrivals, h.now+h.r.Int64N(modelCall+1))
			}
			h.note("%d issued of part %d", n, p.purse.Part.Number)
		}
	case k < 82:
		back := p.old
		if p.old = (Back{}); back.N == 0 {
			back = Back{p.purse.Taken - p.used, p.purse.Part}
			p.purse.Taken = p.used
		}
		if back.N > 0 {
			h.act(p, Use{Look: true}, back)
		}
	default:
		h.happens(p, k, restores)
	}
}

// happens is what befalls an instance, by chance.
func (h *sliding) happens(p *slider, k int, restores bool) {
	switch {
	case k < 88 && len(h.late) > 0:
		x := h.late[h.r.IntN(len(h.late))]
		h.note("late %+v %v", *x, h.s.commit(x))
	case k < 92: // crash, and another one
		*p = slider{off: h.r.Int64N(2*modelError+1) - modelError, shift: p.shift, store: p.store + 1}
	case k < 94: // the clock is set, within its bound; a part does not come back
		p.off = h.r.Int64N(2*modelError+1) - modelError
	case k < 97:
		h.backup = h.s.copy()
	case restores && h.backup != nil:
		knows := slices.IndexFunc(h.all, func(p *slider) bool {
			return p.purse.Revision() > h.backup.totalAt && p.seen == h.backup.cluster && p.seen == h.s.cluster
		})
		now := h.s
		h.s, h.restored = h.backup.copy(), true
		h.s.next, h.s.revision = now.next, now.revision+1000
		if knows >= 0 && h.r.IntN(2) == 0 { // under the same ID, while somebody knows of more and looks first
			h.late = nil
			p := h.all[knows]
			for range 200 {
				h.act(p, Use{Need: 1, Used: p.used}, Back{})
				if t := h.s.is(); t.From > p.purse.Part.Number {
					break
				}
			}
		} else {
			h.s.next++
			h.s.cluster = h.s.next
		}
		h.note("restored as %d", h.s.cluster)
	}
}

// over returns the most arrivals in a window's length, wherever it begins.
func (h *sliding) over() (most int64) {
	slices.SortFunc(h.arrivals, cmp.Compare)
	for i, j := 0, 0; j < len(h.arrivals); j++ {
		for h.arrivals[j]-h.arrivals[i] > modelWindow {
			i++
		}
		most = max(most, int64(j-i+1))
	}
	return most
}

// Whenever a window begins by the provider's clock, no more than the limit arrives in it: with clocks
// apart, answers lost and transactions late or sent twice, instances that crash, and a store that is
// restored, which hands out again without an operator.
func TestNoWindowOfASlidingLimitIsOver(t *testing.T) {
	t.Parallel()
	for _, restores := range []bool{false, true} {
		var issued, full int
		var after int64
		for seed := range uint64(500) {
			h := &sliding{counted: modelParts + 2, r: rand.New(rand.NewPCG(seed, 3)), s: &store{marked: marked{cluster: 1, next: 1, revision: 1}}, now: 1000}
			h.s.write(Mark{Cluster: 1})
			h.limit = 1 + h.r.Int64N(12)
			for range 1 + h.r.IntN(3) {
				h.all = append(h.all, &slider{off: h.r.Int64N(2*modelError+1) - modelError})
			}
			for range 150 {
				h.step(restores)
			}
			most := h.over()
			if most > h.limit {
				t.Fatalf("seed %d: %d arrive of %d\n%s", seed, most, h.limit, strings.Join(h.log, "\n"))
			}
			if issued += len(h.arrivals); most == h.limit {
				full++
			}
			after += h.taken
		}
		t.Logf("restores %v: %d issued, %d histories reached the limit, %d taken after a restore", restores, issued, full, after)
		if full < 50 || restores && after == 0 {
			t.Error("nothing was tested")
		}
	}
}

// A sliding limit that nobody has used for longer than its total's lease is not taken for a store that went back.
func TestATotalThatHasEndedIsNoLoss(t *testing.T) {
	s, rule := &Verdict{Cluster: 7}, Rule{Limit: 5000, Instances: 1, Share: 10}
	p := Purse{Part: protocol.Part{Number: 1000, Counted: 102}}
	p.Read(nil, 0, s)
	next, n, ok := p.Next(rule, Use{Need: 1}, Back{}, s)
	if !ok || n != 10 {
		t.Fatalf("took %d, %v", n, ok)
	}
	p.Committed(next, n, 5, s)
	lostIn := func(p *Purse, number int64, lost bool) {
		later := p.In(protocol.Part{Number: number, Counted: 102})
		later.Read(nil, 0, s)
		if next, n, ok := later.Next(rule, Use{Need: 1}, Back{}, s); !ok || (n == 0) != lost || (next.Withheld != "") != lost {
			t.Errorf("in part %d: took %d, %v, withheld %q", number, n, ok, next.Withheld)
		}
	}
	for number, lost := range map[int64]bool{1001: true, 1103: true, 1104: false, 1400: false} {
		lostIn(&p, number, lost)
	}
	carries := next
	carries.Carried, carries.CarriedTo = []Carried{{N: 1, Part: 1050}}, 1
	p.Committed(carries, 0, 6, s)
	for number, lost := range map[int64]bool{1104: true, 1153: true, 1154: false} {
		lostIn(&p, number, lost)
	}
}

// After a restore nothing is handed out until From by any clock: a clock that is ahead takes permits first, and one
// that is behind still waits. proof/generations.pml is over where the pause is a part shorter.
func TestThePauseAfterARestoreIsForEveryClock(t *testing.T) {
	s, rule := &Verdict{Cluster: 2}, Rule{Limit: 5000, Instances: 2, Share: 10}
	total := Total{Limit: 5000, Out: 5000, Cluster: 1, Writes: 1, Newest: 999, Parts: []int64{5000}}
	in := func(number, revision int64) (n int64) {
		t.Helper()
		text, err := Encode(total)
		if err != nil {
			t.Fatal(err)
		}
		p := Purse{Part: protocol.Part{Number: number, Counted: 102}}
		p.Read([]byte(text), revision, s)
		next, n, ok := p.Next(rule, Use{Need: 1}, Back{}, s)
		if ok {
			total = next
		}
		return n
	}
	// The store that is no more may have handed out permits of part 1001, whose clock is ahead.
	for _, step := range []struct{ part, takes int64 }{{1000, 0}, {1102, 0}, {1103, 10}, {1102, 0}, {1103, 10}, {1104, 10}, {1105, 10}} {
		if n := in(step.part, 5); n != step.takes {
			t.Errorf("in part %d: took %d instead of %d", step.part, n, step.takes)
		}
	}
	if total.From != 0 {
		t.Errorf("the pause is still noted: %d", total.From)
	}
}

// An operator who vouches for the totals of keys ends the pause of a sliding limit that a restore has begun. It stays
// ended once an instance has taken permits, for that instance and for others.
func TestAWordForKeysEndsThePause(t *testing.T) {
	t.Parallel()
	const limit = 5000
	s, rule := &account{cluster: 2, revision: 7}, Rule{Limit: limit, Instances: 2, Share: 10}
	text, err := Encode(Total{Limit: limit, Out: 4000, Cluster: 1, Writes: 1, Newest: 999, Parts: []int64{4000}})
	if err != nil {
		t.Fatal(err)
	}
	s.value = []byte(text)
	told := &Verdict{Cluster: 2, Told: 9}
	in := func(number int64) holder {
		return holder{purse: Purse{Part: protocol.Part{Number: number, Counted: 102}}}
	}
	h := in(1000)
	if _, n, _ := h.write(s, rule, Use{Need: 1}, Back{}); n != 0 || h.purse.Withheld() == "" || h.purse.Freed(1, limit) != 103 {
		t.Fatalf("%d are taken of a total that a backup has brought, withheld %q", n, h.purse.Withheld())
	}
	for i, number := range []int64{1000, 1001, 999} { // instances, with clocks apart
		h := in(number)
		h.purse.Read(s.value, s.revision, told)
		if why, part := h.purse.Withheld(), h.purse.Freed(1, limit); why != "" || part != 0 {
			t.Errorf("instance %d: withheld %q, some are left in %d parts", i, why, part)
		}
		next, n, ok := h.purse.Next(rule, Use{Need: 1}, Back{}, told)
		if text, err = Encode(next); err != nil || !ok || n != 10 {
			t.Fatalf("instance %d: it takes %d, want 10; %v", i, n, err)
		}
		s.revision = max(9, s.revision) + 1 // the word was revision 9
		s.value = []byte(text)
		if h.purse.Committed(next, n, s.revision, told); h.purse.Left(limit) != 1000-10*int64(i+1) {
			t.Errorf("instance %d: %d are left, withheld %q", i, h.purse.Left(limit), h.purse.Withheld())
		}
	}
}

// A clock that is further behind than a total keeps parts for takes nothing: what counts in its part may be gone.
func TestAClockFarBehindTakesNothing(t *testing.T) {
	s, rule := &Verdict{Cluster: 1}, Rule{Limit: 5000, Instances: 1, Share: 10}
	var total Total
	for i, step := range []struct{ part, need, takes int64 }{{850, 5000, 5000}, {1000, 1, 10}, {998, 1, 10}, {997, 1, 0}, {930, 1, 0}, {1001, 1, 10}} {
		text, err := Encode(total)
		if err != nil {
			t.Fatal(err)
		}
		p := Purse{Part: protocol.Part{Number: step.part, Counted: 102}}
		p.Read([]byte(text), int64(i), s)
		next, n, ok := p.Next(rule, Use{Need: step.need}, Back{}, s)
		if ok {
			total = next
		}
		if n != step.takes {
			t.Errorf("in part %d: took %d instead of %d", step.part, n, step.takes)
		}
	}
}
