package escrow

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// store is a naive etcd with the total of one window, and the mark.
type store struct {
	marked
	total   []byte
	of      Total // that it is
	totalAt int64 // revision of the total; 0: there is none
}

func (s *store) copy() *store {
	c := *s
	return &c
}

func (s *store) is() Total { return s.of }

// sent is a transaction on its way: a total to write, if the total and the mark are as they were.
type sent struct {
	by       string
	next     Total
	total    int64 // revision of the total
	mark     int64
	returned bool // it gives back
}

func (s *store) commit(x *sent) bool {
	if s.totalAt != x.total || s.markRevision != x.mark {
		return false
	}
	s.put(x.next)
	return true
}

func (s *store) put(t Total) {
	text, err := Encode(t)
	if err != nil {
		panic(err)
	}
	s.revision++
	s.total, s.of, s.totalAt = []byte(text), t, s.revision
}

// process is an instance with its purse.
type process struct {
	name      string
	purse     Purse
	used      int64
	mark      MarkAt
	seen      uint64 // the cluster that it follows
	elsewhere int64  // when it last looked at another store; 0: never
}

func (p *process) hand() int64 { return p.purse.Taken - p.used }

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

// The window starts at 0, and it is an hour later.
const modelNow = int64(time.Hour)

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) join() {
	h.names++
	h.procs = append(h.procs, &process{name: fmt.Sprint("i", h.names)})
}

// notice has an instance see that the store is another one: what it has in hand counts no more.
func (h *history) notice(p *process) {
	if p.seen != h.s.cluster {
		if p.seen != 0 {
			p.elsewhere = modelNow - int64(time.Minute)
		}
		p.seen, p.purse.Taken = h.s.cluster, p.used
	}
}

// knowMark makes sure that the mark is known, as the coordinator does.
func (h *history) knowMark(p *process) {
	if _, renew := p.mark.Renewed(p.elsewhere, 0, time.Millisecond); p.mark.AnsweredBy == h.s.cluster && !renew {
		return
	}
	p.mark = h.s.read()
	if next, renew := p.mark.Renewed(p.elsewhere, modelNow, time.Millisecond); renew {
		h.s.write(next)
		p.mark = h.s.read()
		h.note("%s: mark %+v", p.name, next)
	}
}

// act lets an instance do what the coordinator does: take some, or give back what its purse has no
// more.
func (h *history) act(p *process, need, back int64) {
	h.notice(p)
	h.knowMark(p)
	r := Rule{Limit: h.limit, Instances: int64(len(h.procs)), Share: h.r.Int64N(12) - 1}
	known := false
	for range 4 {
		store := p.mark.Of(0, false)
		if !p.purse.Of(store) {
			if p.purse = (Purse{Taken: p.used}); back > 0 {
				return
			}
		}
		next, n, ok := p.purse.Next(r, Use{Used: p.used, Need: need, Rate: h.r.Int64N(4)}, Back{N: back}, store)
		if !ok && known {
			return
		}
		committed := false
		if ok && (known || n >= 0) {
			x := &sent{p.name, next, p.purse.Revision(), p.mark.Revision, n < 0}
			switch h.r.IntN(9) {
			case 0: // lost on its way
				h.note("%s: %+v lost", p.name, *x)
				return
			case 1: // late
				h.late = append(h.late, x)
				h.note("%s: %+v late", p.name, *x)
				return
			case 2: // its answer is lost
				h.note("%s: %+v unanswered, %v", p.name, *x, h.s.commit(x))
				return
			case 3: // it comes twice, and the second answer is heard
				h.note("%s: %+v twice, %v", p.name, *x, h.s.commit(x))
				committed = h.s.commit(x)
			case 4: // others come between
				if o := h.procs[h.r.IntN(len(h.procs))]; o != p && !h.between {
					h.between = true
					h.act(o, 1, 0)
					h.between = false
				}
				fallthrough
			default:
				committed = h.s.commit(x)
				h.note("%s: %+v %v", p.name, *x, committed)
			}
		}
		if committed {
			p.purse.Committed(next, n, h.s.revision, store)
			return
		}
		p.mark = h.s.read()
		never := p.purse.Refused(next, h.s.total, h.s.totalAt, p.mark.Of(0, false))
		if known && n < 0 && !never {
			return
		}
		known = true
	}
}

// giveBack gives back so many of those in hand: the purse has them no more before that is sent.
func (h *history) giveBack(p *process, n int64) {
	if n > 0 {
		p.purse.Taken -= n
		h.act(p, 0, n)
	}
}

func (h *history) step(restores bool) {
	p := h.procs[h.r.IntN(len(h.procs))]
	switch n := h.r.IntN(100); {
	case n < 45:
		h.act(p, h.r.Int64N(4), 0)
	case n < 70:
		k := min(p.hand(), 1+h.r.Int64N(3))
		if k > 0 {
			p.used += k
			h.issued += k
		}
	case n < 76 && p.used > 0: // released
		p.used--
		h.issued--
	case n < 82:
		h.giveBack(p, p.hand()-h.r.Int64N(2))
	case n < 87 && len(h.late) > 0:
		i := h.r.IntN(len(h.late))
		h.note("%s: late %+v %v", h.late[i].by, *h.late[i], h.s.commit(h.late[i]))
	case n < 89:
		h.join()
	case n < 92 && len(h.procs) > 1: // crash, or leave
		i := h.r.IntN(len(h.procs))
		if h.r.IntN(2) == 0 {
			h.giveBack(h.procs[i], h.procs[i].hand())
		}
		h.procs = append(h.procs[:i:i], h.procs[i+1:]...)
	case n < 93: // an operator says what was used, after all have told what they have in hand
		hand := int64(0)
		for _, p := range h.procs {
			h.notice(p)
			hand += p.hand()
		}
		h.s.put(h.s.is().Corrected(h.issued, hand, 0, protocol.Part{}, h.s.cluster))
		h.rewritten = true
		h.note("corrected to %+v", h.s.is())
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
		if p.purse.Revision() > h.backup.totalAt && p.seen == h.backup.cluster && p.seen == h.s.cluster {
			knows = p
		}
	}
	other := knows == nil || h.r.IntN(2) == 0
	now := h.s
	h.s, h.rewritten = h.backup.copy(), true
	h.s.next, h.s.revision = now.next, now.revision+1000 // bumped
	if !other {
		h.late = nil // what was sent to the old store is lost
	} else { // what was read of the old store may be sent to the new one
		h.s.next++
		h.s.cluster = h.s.next
	}
	h.note("restored as %d", h.s.cluster)
	h.between = true // nobody else comes between
	for i := 0; !other && h.s.is().Withheld == "" && i < 100; i++ {
		h.act(knows, 1, 0)
	}
	h.between = false
}

// run plays a history of one window and reports the first violation.
func run(seed uint64, restores bool) (issued, out int64, err error) {
	h := &history{r: rand.New(rand.NewPCG(seed, 1)), s: &store{marked: marked{cluster: 1, next: 1, revision: 1}}}
	h.s.write(Mark{Cluster: 1})
	h.limit = 1 + h.r.Int64N(40)
	h.most = h.limit
	for range 1 + h.r.IntN(4) {
		h.join()
	}
	for range 60 {
		before := h.s.is().Out
		h.rewritten = false
		h.step(restores)
		// What instances may issue, and have issued, is never more than handed out, and
		// nothing is handed out beyond the limit in force.
		inHand := int64(0)
		for _, p := range h.procs {
			inHand += p.hand()
			if p.hand() < 0 {
				return 0, 0, fmt.Errorf("%s issued %d of %d\n%s", p.name, p.used, p.purse.Taken, strings.Join(h.log, "\n"))
			}
		}
		switch now := h.s.is().Out; {
		case h.issued+inHand > h.most:
			err = fmt.Errorf("%d issued and %d in hand of %d", h.issued, inHand, h.most)
		case !restores && h.issued+inHand > now:
			err = fmt.Errorf("%d issued and %d in hand of %d handed out", h.issued, inHand, now)
		case now > before && !h.rewritten && now > h.most:
			err = fmt.Errorf("%d handed out of %d", now, h.most)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%w\n%s", err, strings.Join(h.log, "\n"))
		}
	}
	return h.issued, h.s.is().Out, nil
}

func play(t *testing.T, restores bool) {
	t.Helper()
	issued := int64(0)
	for seed := range uint64(2_000) {
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
// another ID, or an instance that knows of more looks first.
func TestARestoredBackupHandsNothingOutTwice(t *testing.T) {
	t.Parallel()
	play(t, true)
}

// An instance has at most a second of its share in hand, or one permit. Without a short
// limit that is what it issues in a second, or its part of 1% of the limit. Near the end
// it is an equal part of what is left.
func TestChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Limit: rapid.Int64Range(1, 1e12).Draw(t, "limit"), Instances: rapid.Int64Range(1, 2000).Draw(t, "instances"), Share: rapid.Int64Range(-1, 1e12).Draw(t, "share")}
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
