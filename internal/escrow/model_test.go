package escrow

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// store is a naive etcd with the keys of one window.
type store struct {
	cluster  uint64
	revision int64
	total    Total
	totalRev int64
	older    *Total // of the window before, at revision 1
	own      map[string]Holding
	ownRev   map[string]int64
}

func (s *store) copy() *store {
	c := *s
	c.own, c.ownRev = map[string]Holding{}, map[string]int64{}
	for k, v := range s.own {
		c.own[k], c.ownRev[k] = v, s.ownRev[k]
	}
	return &c
}

func (s *store) read(by string) Reading {
	if s.totalRev == 0 && s.older != nil {
		return Reading{Store: Store{Cluster: s.cluster}, Revision: s.revision, Total: *s.older, TotalRevision: 1, Older: true}
	}
	return Reading{Store: Store{Cluster: s.cluster}, Revision: s.revision, Total: s.total, TotalRevision: s.totalRev, Own: s.own[by], OwnRevision: s.ownRev[by]}
}

// sent is a transaction on its way.
type sent struct {
	by       string
	step     Step
	totalRev int64
	ownRev   int64
}

func (s *store) commit(x *sent) bool {
	if s.totalRev != x.totalRev || s.ownRev[x.by] != x.ownRev {
		return false
	}
	s.revision++
	s.total, s.totalRev = x.step.Total, s.revision
	s.own[x.by], s.ownRev[x.by] = x.step.Own, s.revision
	return true
}

// process is an instance with its ledger.
type process struct {
	name    string
	account Account
	bound   int64
	used    int64
}

// history plays one random history of a window, and returns what was wrong, and how many
// permits were issued of what limit. restores says that the store may be put back.
type history struct {
	r      *rand.Rand
	s      *store
	backup *store
	procs  []*process
	late   []*sent // not yet arrived, or repeated
	limit  int64
	most   int64 // largest limit so far
	issued int64
	names  int
	log    []string
	// between says that one instance acts between another's read and its transaction.
	between   bool
	rewritten bool // the total, in this step, by an operator or a backup: it may be more than is needed
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) join() {
	h.names++
	h.procs = append(h.procs, &process{name: fmt.Sprint("i", h.names)})
}

// act lets an instance do what the coordinator does.
func (h *history) act(p *process, u Use) {
	f := h.s.read(p.name)
	p.account.Read(&f)
	p.bound = p.account.May()
	u.Used = p.used
	r := Rule{h.limit, int64(len(h.procs)), h.r.Int64N(12) - 1}
	step, ok := p.account.Next(r, &f, u, p.name)
	if !ok {
		return
	}
	p.bound = min(p.bound, step.Own.Taken)
	x := &sent{p.name, step, f.TotalRevision, f.OwnRevision}
	if f.Older {
		x.totalRev = 0
	}
	p.account.Sent(step.Own.Taken)
	switch h.r.IntN(9) {
	case 0: // lost on its way
		h.note("%s: %+v lost", p.name, step)
	case 1: // late
		h.late = append(h.late, x)
		h.note("%s: %+v late", p.name, step)
	case 2: // its answer is lost
		h.note("%s: %+v unanswered, %v", p.name, step, h.s.commit(x))
	case 3: // it comes twice, and the second answer is heard
		h.note("%s: %+v twice, %v", p.name, step, h.s.commit(x))
		h.hear(p, h.s.commit(x))
	case 4: // others come between
		if o := h.procs[h.r.IntN(len(h.procs))]; o != p && !h.between {
			h.between = true
			h.act(o, Use{Need: 1})
			h.between = false
		}
		fallthrough
	default:
		ok := h.s.commit(x)
		h.hear(p, ok)
		h.note("%s: %+v %v", p.name, step, ok)
	}
}

// hear lets an instance take the answer to what it has sent.
func (h *history) hear(p *process, committed bool) {
	if committed {
		p.account.Committed(h.s.revision)
	} else {
		f := h.s.read(p.name)
		p.account.Refused(&f)
	}
	p.bound = p.account.May()
}

func (h *history) step(restores bool) {
	p := h.procs[h.r.IntN(len(h.procs))]
	switch n := h.r.IntN(100); {
	case n < 45:
		h.act(p, Use{Need: h.r.Int64N(4), Rate: h.r.Int64N(4), WriteUsed: h.r.IntN(4) == 0, Along: h.r.IntN(4) == 0, Full: h.r.IntN(4) == 0})
	case n < 70:
		k := min(p.bound-p.used, 1+h.r.Int64N(3))
		if k > 0 {
			p.used += k
			h.issued += k
		}
	case n < 76 && p.used > 0: // released
		p.used--
		h.issued--
	case n < 82:
		h.act(p, Use{Idle: true, Keep: h.r.Int64N(2)})
	case n < 87 && len(h.late) > 0:
		i := h.r.IntN(len(h.late))
		h.note("%s: late %+v %v", h.late[i].by, h.late[i].step, h.s.commit(h.late[i]))
	case n < 89:
		h.join()
	case n < 92 && len(h.procs) > 1: // crash, or leave
		i := h.r.IntN(len(h.procs))
		if h.r.IntN(2) == 0 {
			h.act(h.procs[i], Use{Ends: true})
		}
		h.procs = append(h.procs[:i:i], h.procs[i+1:]...)
	case n < 93: // an operator says what was used, after all have told what they hold
		for _, p := range h.procs {
			h.act(p, Use{WriteUsed: true})
		}
		hand := int64(0)
		for _, p := range h.procs {
			if p.account.lost || len(p.account.unknown) > 0 || h.s.own[p.name].Used > p.used {
				return // it could not tell
			}
			hand += max(0, h.s.own[p.name].Taken-h.s.own[p.name].Used)
		}
		h.s.revision++
		h.s.total = h.s.total.Corrected(h.issued, hand, h.s.cluster)
		h.s.totalRev, h.rewritten = h.s.revision, true
		h.note("corrected to %+v", h.s.total)
	case n < 94:
		h.limit = 1 + h.r.Int64N(40)
		h.most = max(h.most, h.limit)
		h.note("limit %d", h.limit)
	case n < 97:
		h.backup = h.s.copy()
		h.note("backup")
	case restores && h.backup != nil:
		h.restore()
	}
}

// restore puts the backup back: under another cluster ID, or under the same one while an
// instance lives that knows of more, and looks before anybody else.
func (h *history) restore() {
	var knows *process
	for _, p := range h.procs {
		if p.account.own > h.backup.revision {
			knows = p
		}
	}
	other := knows == nil || h.r.IntN(2) == 0
	h.s, h.rewritten = h.backup.copy(), true
	if !other {
		h.late = nil // what was sent to the old store is lost
	} else { // what was read of the old store may be sent to the new one
		h.s.cluster += uint64(1 + h.r.IntN(3))
		h.s.revision += 1000 // bumped
	}
	h.note("restored as %d", h.s.cluster)
	h.between = true // nobody else comes between
	for i := 0; !other && h.s.total.Withheld == "" && i < 100; i++ {
		h.act(knows, Use{})
	}
	h.between = false
}

// run plays a history of one window and reports the first violation.
func run(seed uint64, restores bool) (issued, out int64, err error) {
	h := &history{r: rand.New(rand.NewPCG(seed, 1)), s: &store{cluster: 1, revision: 1, own: map[string]Holding{}, ownRev: map[string]int64{}}}
	h.limit = 1 + h.r.Int64N(40)
	h.most = h.limit
	if restores || h.r.IntN(2) == 0 {
		h.s.older = &Total{Limit: 7, Out: 7, Cluster: 1}
	}
	for range 1 + h.r.IntN(4) {
		h.join()
	}
	for range 60 {
		before := h.s.total.Out
		h.rewritten = false
		h.step(restores)
		// What instances may issue, and have issued, is never more than handed out, and
		// nothing is handed out beyond the limit in force.
		inHand := int64(0)
		for _, p := range h.procs {
			inHand += p.bound - p.used
			if p.used > p.bound {
				return 0, 0, fmt.Errorf("%s issued %d of %d\n%s", p.name, p.used, p.bound, strings.Join(h.log, "\n"))
			}
		}
		switch {
		case h.issued+inHand > h.most:
			err = fmt.Errorf("%d issued and %d in hand of %d", h.issued, inHand, h.most)
		case !restores && h.issued+inHand > h.s.total.Out:
			err = fmt.Errorf("%d issued and %d in hand of %d handed out", h.issued, inHand, h.s.total.Out)
		case h.s.total.Out > before && !h.rewritten && h.s.total.Out > h.most:
			err = fmt.Errorf("%d handed out of %d", h.s.total.Out, h.most)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%w\n%s", err, strings.Join(h.log, "\n"))
		}
	}
	return h.issued, h.s.total.Out, nil
}

func play(t *testing.T, restores bool) {
	t.Helper()
	issued := int64(0)
	for seed := range uint64(10_000) {
		n, _, err := run(seed, restores)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		issued += n
	}
	t.Logf("%d permits issued", issued)
	if issued == 0 {
		t.Error("nothing was issued: nothing was tested")
	}
}

func TestNeverMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	play(t, false)
}

// A backup is restored, as often as not with permits handed out since. Its cluster has
// another ID.
func TestARestoredBackupHandsNothingOutTwice(t *testing.T) {
	t.Parallel()
	play(t, true)
}

// An instance that knows of another cluster, and finds nothing, cannot tell what was
// handed out.
func TestAnEmptyStoreOfAnotherCluster(t *testing.T) {
	t.Parallel()
	var a Account
	a.Read(&Reading{Store: Store{Cluster: 1}, Revision: 5})
	empty := Reading{Store: Store{Cluster: 2}, Revision: 5}
	a.Read(&empty)
	if s, ok := a.Next(Rule{10, 1, -1}, &empty, Use{Need: 1}, "i"); !ok || s.Total.Withheld == "" || s.Own.Taken != 0 {
		t.Errorf("%+v, %v", s, ok)
	}
}

// While no answer comes, what an instance keeps in mind does not grow, and it issues no more
// than the least that it has sent. The first answer settles all of that.
func TestWhatIsUnknownIsBounded(t *testing.T) {
	t.Parallel()
	var a Account
	r := Rule{Limit: 1e6, Instances: 1, Share: 100}
	f := Reading{Store: Store{Cluster: 1}, Revision: 9, Total: Total{Limit: 1e6, Out: 50, Cluster: 1}, TotalRevision: 9, Own: Holding{"i", 50, 0}, OwnRevision: 9}
	a.Sent(50)
	a.Committed(9)
	step := func(need int64) Step {
		t.Helper()
		a.Read(&f)
		s, ok := a.Next(r, &f, Use{Need: need, Idle: need == 0, Keep: 20}, "i")
		if !ok {
			t.Fatal("nothing is sent")
		}
		a.Sent(s.Own.Taken)
		return s
	}
	least := int64(50)
	for i := range int64(1000) {
		s := step(100 + i%9*(i%2)) // some values come again
		least = min(least, s.Own.Taken)
		if a.May() != least || len(a.unknown) > mostUnknown+1 {
			t.Fatalf("sent %d: may issue %d, want %d; %d are unknown", s.Own.Taken, a.May(), least, len(a.unknown))
		}
	}
	s := step(200)
	if s.Own.Taken != f.Own.Taken || s.Total.Out != f.Total.Out {
		t.Fatalf("sent %+v beyond the bound, want what there is", s)
	}
	refused := f
	refused.Revision, refused.TotalRevision = 10, 10
	if a.Refused(&refused); !a.Unsure() {
		t.Fatal("a refusal settles what is unknown")
	}
	f.Revision, f.TotalRevision = 10, 10
	step(200)
	a.Committed(11)
	if a.Unsure() || a.May() != 50 {
		t.Errorf("may issue %d after an answer, want 50", a.May())
	}
	f.Revision, f.TotalRevision, f.OwnRevision = 11, 11, 11
	if s := step(200); s.Own.Taken <= 50 {
		t.Errorf("takes %d after an answer", s.Own.Taken)
	}
}

// An instance has at most a second of its share in hand, or one permit. Without a short
// limit that is what it issues in a second, or its part of 1% of the limit. Near the end
// it is an equal part of what is left.
func TestChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{rapid.Int64Range(1, 1e12).Draw(t, "limit"), rapid.Int64Range(1, 2000).Draw(t, "instances"), rapid.Int64Range(-1, 1e12).Draw(t, "share")}
		left, rate := rapid.Int64Range(0, r.Limit).Draw(t, "left"), rapid.Int64Range(0, 1e12).Draw(t, "rate")
		n, most := r.Chunk(left, rate), r.Share
		if most < 0 {
			most = max(rate, r.Limit/100/r.Instances)
		}
		if n < 1 || n > 1 && (n > most || n*r.Instances > left) || n < most && (n+1)*r.Instances <= left {
			t.Fatalf("%+v with %d left and %d used: %d each", r, left, rate, n)
		}
	})
}
