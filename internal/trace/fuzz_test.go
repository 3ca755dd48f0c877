package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// The times of a small world: a history of a second has many windows.
const (
	smallWindow = 100 * ms
	smallFresh  = 100 * ms
	smallError  = 10 * ms
)

// member is an instance of the small world: the planner and gate that ship, on a clock that
// is off by skew.
type member struct {
	id        string
	ended     bool // it has promised its end: its history goes on, or it issues nothing
	skew      int64
	planner   share.Planner
	gate      *window.Gate
	delivered int // views, of the world's; 0: it has not listed yet
	used      map[quota.Window]int64
}

// small is a world: one line of views, and three instances that learn of them whenever the
// bytes of the history say.
type small struct {
	now     int64
	settle  time.Duration
	views   Views
	members []*member
	story   []string
}

func (w *small) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%4d ms  ", w.now/ms)+fmt.Sprintf(format, args...))
}

func (w *small) read(m *member) clock.Instant {
	return clock.Instant{Mono: w.now + 1, Wall: epoch + w.now + m.skew}
}

func (w *small) policy(choice byte) *quota.Policy {
	p := quota.Policy{Timing: quota.Timing{Settle: w.settle, Freshness: time.Duration(smallFresh), ClockError: time.Duration(smallError)}, Outage: quota.OutageStop}
	p.Limits = []quota.Limit{{Permits: int64(choice%7) * 3, Window: time.Duration(smallWindow)}}
	if choice&0x40 != 0 {
		p.Limits = append(p.Limits, quota.Limit{Permits: int64(choice%7) * 5, Window: time.Duration(2 * smallWindow)})
	}
	if choice&0xa0 == 0xa0 { // two limits of a new length are announced, often for one of its windows
		for i, permits := range []int64{4, 8} {
			from := time.Unix(0, epoch+w.now+int64(choice%32)*20*ms+int64(i)*20*ms)
			p.Next = append(p.Next, quota.LimitChange{From: from, Limits: []quota.Limit{
				{Permits: int64(choice%7) * 3, Window: time.Duration(smallWindow)}, {Permits: int64(choice%7) * permits, Window: time.Duration(2 * smallWindow)}}})
		}
	}
	if p.Limits[0].Permits == 0 {
		p.Limits, p.Next, p.Mode = []quota.Limit{{Permits: 1, Window: time.Duration(smallWindow)}}, nil, quota.ModePause
	}
	p = p.WithDefaults()
	return &p
}

// commit makes a revision of a change.
func (w *small) commit(c protocol.Change) {
	v := View{After: epoch + w.now - 1, By: epoch + w.now}
	if n := len(w.views); n > 0 {
		v.View = w.views[n-1].View
	}
	v.Revision++
	if c.Policy != nil {
		v.Policy, v.PolicyRevision = c.Policy, v.Revision
	}
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i protocol.Instance) bool {
		return slices.Contains(c.Deleted, i.ID) || len(c.Put) > 0 && c.Put[0].ID == i.ID
	})
	v.Instances = append(v.Instances, c.Put...)
	w.views = append(w.views, v)
}

// change is revision number n, as it is told.
func (w *small) change(n int) protocol.Change {
	before, v := &w.views[n-1], &w.views[n]
	c := protocol.Change{Revision: v.Revision}
	if v.PolicyRevision == v.Revision {
		c.Policy = v.Policy
	}
	for _, i := range v.Instances {
		if !slices.Contains(before.Instances, i) {
			c.Put = append(c.Put, i)
		}
	}
	for _, i := range before.Instances {
		if !slices.ContainsFunc(v.Instances, func(o protocol.Instance) bool { return o.ID == i.ID }) {
			c.Deleted = append(c.Deleted, i.ID)
		}
	}
	return c
}

// play plays the history that the bytes are, three for each thing that happens: what, to
// whom and how, and how long after the one before.
func play(data []byte) *small {
	w := &small{settle: quota.MinSettleFor(time.Duration(smallFresh), time.Duration(smallError), time.Duration(2*smallWindow))}
	w.now = 100 * ms
	for i := range 3 {
		m := &member{id: string(rune('a'+i)) + ".1", used: map[quota.Window]int64{}, skew: smallError * int64(i-1)}
		m.planner.Clock = clock.Started(w.read(m), nil)
		m.gate = window.NewGate(&m.planner, nil, nil)
		m.gate.Booked = func(uses []window.Use) {
			for _, u := range uses {
				m.used[u.Window] = max(m.used[u.Window], u.Used)
			}
		}
		w.members = append(w.members, m)
	}
	w.commit(protocol.Change{Policy: w.policy(4), Put: instances(w.members[0].id, w.members[1].id)})
	for ; len(data) >= 3; data = data[3:] {
		w.now += 1 + int64(data[2])*ms/2
		w.happen(data[0], data[1])
	}
	return w
}

func (w *small) happen(what, how byte) {
	m := w.members[how%3]
	at := w.read(m)
	switch what % 8 {
	case 0: // the limit changes
		w.commit(protocol.Change{Policy: w.policy(how)})
		w.tell("view %d: limits %v, %s", len(w.views), w.views[len(w.views)-1].Policy.Limits, w.views[len(w.views)-1].Policy.Mode)
	case 1: // an instance joins, at once or later, announces its end, or is gone
		i := protocol.Instance{ID: m.id, Name: m.id[:1]}
		switch how / 3 % 5 {
		case 0:
			w.commit(protocol.Change{Deleted: []string{m.id}})
		case 1:
			i.From = time.Unix(0, epoch+w.now+int64(how)*ms)
			fallthrough
		case 2:
			w.commit(protocol.Change{Put: []protocol.Instance{i}})
		case 3: // so far ahead that it issues nothing later, though it hears of it by the view alone
			i.Until = time.Unix(0, epoch+w.now+smallFresh*2+2*smallError+int64(how)*ms)
			w.commit(protocol.Change{Put: []protocol.Instance{i}})
		case 4: // it obeys before it promises
			if m.delivered > 0 {
				i.Until, m.ended = time.Unix(0, at.Wall+int64(how)*ms), true
				m.planner.Announce(i.Until.UnixNano())
				m.gate.Changed(at)
			}
			w.commit(protocol.Change{Put: []protocol.Instance{i}})
		}
		w.tell("view %d: %v", len(w.views), w.views[len(w.views)-1].Instances)
	case 2: // it lists
		if m.ended {
			return
		}
		w.tell("%s lists view %d", m.id[:1], len(w.views))
		m.delivered = len(w.views)
		m.planner.Reset(at, m.id, w.views[len(w.views)-1].View)
		m.gate.Changed(at)
	case 3, 4: // it learns of the next views
		for n := 1 + int(how/64); n > 0 && m.delivered > 0 && m.delivered < len(w.views); n-- {
			w.tell("%s learns of view %d", m.id[:1], m.delivered+1)
			m.planner.Apply(at, w.change(m.delivered))
			m.delivered++
			m.gate.Changed(at)
		}
	case 5: // it proves what it knows, as late as is true, or earlier
		if m.delivered == 0 {
			return
		}
		sent := w.now
		if m.delivered < len(w.views) {
			sent = w.views[m.delivered].After - epoch
		}
		sent = max(0, sent-int64(how/64)*10*ms)
		w.tell("%s proves as of %d ms", m.id[:1], sent/ms)
		m.planner.Prove(clock.Instant{Mono: sent + 1, Wall: epoch + sent + m.skew})
		m.gate.Changed(at)
	default: // it takes what it may, or some
		n := int64(math.MaxInt32)
		if how/64 == 3 {
			n = 2
		}
		if _, _, got := m.gate.TakeUpTo(at, n, queue.Default); got > 0 {
			w.tell("%s takes %d", m.id[:1], got)
		}
	}
}

// over returns the first window of which more was issued than its bound.
func (w *small) over() (text string, windows int) {
	sums := map[quota.Window]int64{}
	for _, m := range w.members {
		m.gate.Close() // which books what is left to be booked
		for win, n := range m.used {
			sums[win] += n
		}
	}
	const r = protocol.DriftBound
	for win, sum := range sums {
		from := win.Start() + smallError - (int64(w.settle)-int64(win.Length)/r)*r/(r+1)
		to := win.Start() - smallError - smallFresh*r/(r-1)
		b := w.views.Bound(win, from, to, win.End()+smallError, sum, false)
		if sum > 0 {
			windows++
		}
		if b.Most != Unlimited && sum > b.Most {
			return fmt.Sprintf("window of %v from %d ms: %d permits, at most %d by view %d", win.Length, (win.Start()-epoch)/ms, sum, b.Most, b.By+1), windows
		}
	}
	return "", windows
}

// FuzzHistory plays histories of a small world against the planners and gates that ship.
// The bytes are what happens, so coverage leads from one history to the next.
func FuzzHistory(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(someHistory(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := play(data[:min(len(data), 900)])
		if over, _ := w.over(); over != "" {
			t.Fatalf("%s\n%s", strings.Join(w.story, "\n"), over)
		}
	})
}

// someHistory is a history of a seed: instances mostly do what instances do.
func someHistory(seed uint64) (data []byte) {
	r := rand.New(rand.NewPCG(seed, 7))
	for range 3 {
		data = append(data, 2, byte(len(data)/3), 0)
	}
	for range 250 {
		what := []byte{0, 1, 2, 3, 4, 3, 4, 5, 5, 5, 6, 6, 6, 7}[r.IntN(14)]
		if what == 2 && r.IntN(6) > 0 {
			what = 3
		}
		data = binary.LittleEndian.AppendUint16(data, uint16(what)|uint16(r.IntN(256))<<8)
		data = append(data, byte(r.IntN(30)))
		if how := data[len(data)-2]; what == 1 && how/3%5 == 4 { // an end is promised: the others hear of it first, and gain
			for _, next := range [][2]byte{{4, 192}, {5, 0}, {6, 0}, {6, 0}} { // learn, prove, take
				for _, to := range []byte{how + 1, how + 2, how} {
					if next[0] == 6 || to != how {
						data = append(data, next[0], next[1]+to%3, byte(r.IntN(12)))
					}
				}
			}
		}
	}
	return data
}

// TestSmallHistories plays more of them than the fuzzer begins with.
func TestSmallHistories(t *testing.T) {
	t.Parallel()
	windows := 0
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		w := play(someHistory(seed))
		over, n := w.over()
		if windows += n; over != "" {
			t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(w.story, "\n"), over)
		}
	}
	if t.Logf("%d windows", windows); uint64(windows) < seeds {
		t.Errorf("in %d windows permits were issued, too few", windows)
	}
}
