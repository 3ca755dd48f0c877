package share

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// History is the views of one provider that an instance has held, as far back
// as the settle rule looks. It holds the newest view and, for each older one,
// only the change after it; so a join costs O(1) memory and work, however
// many instances there are.
//
// Instants are monotonic, in nanoseconds. offset, which queries take, is
// corrected wall-clock time minus monotonic time; by it a window's start finds
// its place among the instants.
//
// The zero History has held no view and allows nothing. A History is not safe
// for concurrent use.
type History struct {
	self       string        // this incarnation's ID
	began      int64         // when the first view was taken
	since      int64         // every view held at or after since is known; >= began
	first      bool          // since is the revision that registered this incarnation, as the first of a fleet
	until      int64         // own announced end, corrected wall time; MaxInt64: none
	clockError time.Duration // the largest of the policies since began
	bent       bool          // some view had a shape other than fixed windows, which outlive has not found past

	// The newest view.
	revision int64
	members  map[string]*member // by ID
	rows     []row              // the same members, in no order
	looks    int64              // at instances, one after the other; tests read it

	// terms are the policies and totals of the views, oldest first; the last
	// is the newest view's and ends at MaxInt64.
	terms []span
	// log is how to go back from the newest view to older ones, oldest change
	// first. The change log[i] has the number changes-len(log)+i+1; the view
	// before it was held until log[i].at.
	log     []delta
	changes int64
	bytes   int // about the size of log

	caches map[quota.Window]*boundCache
}

// member is one incarnation as one key value has it. It never changes, but for its row.
type member struct {
	stake
	name string
	row  int // its index in the rows of the newest view
}

// stake is the part of a member that counts in a division.
type stake struct {
	id          string
	hash        uint64 // of the ID
	from, until int64  // corrected wall time; it takes part in [from, until)
}

// row is a member as a count of all members reads it. Rows lie side by side: following a
// pointer to each member would take several times as long.
type row struct {
	stake
	*member
}

func rowOf(m *member) row { return row{stake: m.stake, member: m} }

// MaxHistory bounds the memory of a history beside its newest view, in bytes.
// Changes that come so fast that they take more restart it. Five minutes of 10,000
// instances that all restart take a third of it.
const MaxHistory = 32 << 20

// delta is the change of one revision.
type delta struct {
	at            int64 // when it was applied
	edits         []edit
	before, after *terms // the same, unless the policy or the totals changed
}

// bytes estimates the memory that a delta takes. A policy, a throttle or a document of
// overrides counts as 32 KiB, and may take twice as much.
func (d *delta) bytes() int {
	n := 64
	for _, e := range d.edits {
		n += 16
		if e.old != nil {
			n += 144 + len(e.old.id) + len(e.old.name)
		}
	}
	if d.before != d.after {
		n += (32 << 10) * d.after.overrides.changed(d.before.overrides)
	}
	return n
}

// edit is one instance before and after; nil where it was absent.
type edit struct{ old, new *member }

// span is terms and when it stopped being the newest view's.
type span struct {
	*terms
	end int64
}

func newMember(i *protocol.Instance) *member {
	m := &member{name: i.Name, stake: stake{id: i.ID, hash: hashID(i.ID), from: math.MinInt64, until: math.MaxInt64}}
	if !i.From.IsZero() {
		m.from = i.From.UnixNano()
	}
	if !i.Until.IsZero() {
		m.until = i.Until.UnixNano()
	}
	return m
}

func (s *stake) takesPart(wall int64) bool { return s.from <= wall && wall < s.until }

// Reset restarts the history: at the instant at this process, as the incarnation
// self, holds view v. Views held before count as a share of 0, and an announced end
// is forgotten.
//
// If v is the first of a fleet's (View.First), nobody else can issue permits of windows that
// start after at on every clock, until views say so. So this instance has no views to wait
// out that were held before.
func (h *History) Reset(at int64, self string, v protocol.View) {
	*h = History{
		self: self, began: at, since: at, first: v.First, until: math.MaxInt64,
		revision: v.Revision, caches: map[quota.Window]*boundCache{},
		terms: []span{{newTerms(v.Policy, v.PolicyRevision), math.MaxInt64}},
	}
	h.terms[0].overrides = h.terms[0].overrides.with(v.Overrides)
	h.clockError, h.bent = h.newest().rules.ClockError, h.newest().shaped()
	h.fill(v.Instances)
}

// fill makes the instances the members of the newest view.
func (h *History) fill(instances []protocol.Instance) {
	h.members, h.rows = make(map[string]*member, len(instances)), make([]row, 0, len(instances))
	for i := range instances {
		h.put(newMember(&instances[i]))
	}
}

// Apply moves the newest view on by one revision, at the instant at. Revisions
// must come one by one: each becomes a view of its own. A revision that is not
// newer than the view's changes nothing, and Apply returns false. Before the
// first Reset there is no view to change, and Apply returns false too.
func (h *History) Apply(at int64, c protocol.Change) bool {
	if !h.Started() || c.Revision <= h.revision {
		return false
	}
	at = max(at, h.changed()) // a view that ends later than it did does no harm
	last := &h.terms[len(h.terms)-1]
	d := delta{at: at, before: last.terms, after: last.change(&c)}
	if d.before != d.after {
		last.end = at
		h.terms = append(h.terms, span{d.after, math.MaxInt64})
		h.clockError, h.bent = max(h.clockError, d.after.rules.ClockError), h.bent || d.after.shaped()
	}
	d.edits = make([]edit, 0, len(c.Put)+len(c.Deleted))
	for i := range c.Put {
		m := newMember(&c.Put[i])
		d.edits = append(d.edits, edit{h.put(m), m})
	}
	for _, id := range c.Deleted {
		if old := h.remove(id); old != nil {
			d.edits = append(d.edits, edit{old, nil})
		}
	}
	h.revision = max(h.revision, c.Revision)
	h.log = append(h.log, d)
	h.changes++
	if h.bytes += d.bytes(); h.bytes > MaxHistory {
		h.forget(at)
	}
	return true
}

// forget restarts the history with the newest view: views held before the instant
// at counts as a share of 0.
func (h *History) forget(at int64) {
	h.since, h.first, h.log, h.bytes = at, false, nil, 0
	h.terms = slices.Clone(h.terms[len(h.terms)-1:])
}

// Announce binds this instance to its own announced end, from now on and
// whatever the views say: it has no share of a window that starts at or after
// until, in corrected wall-clock nanoseconds. Of several the earliest counts.
func (h *History) Announce(until int64) {
	if h.Started() {
		h.until = min(h.until, until)
	}
}

// Prune forgets the views that were replaced before the instant before. Give
// it an instant that no later query looks behind: the smaller of now and the
// newest proof, less twice quota.MaxSettle and three times quota.MaxWindow. A query that does
// look behind it gets 0 and ReasonJoining, never too much.
func (h *History) Prune(before int64) {
	n := h.older(before)
	// Removing from the front moves the rest, so wait until that is worth it.
	if n == 0 || n < len(h.log)/2 {
		return
	}
	h.since, h.first = max(h.since, h.log[n-1].at), false
	for i := range h.log[:n] {
		h.bytes -= h.log[i].bytes()
	}
	h.log = slices.Clone(h.log[n:]) // and give a storm's memory back
	k := 0
	for h.terms[k].end < before {
		k++
	}
	h.terms = slices.Delete(h.terms, 0, k)
}

// Started reports whether there was a Reset.
func (h *History) Started() bool { return len(h.terms) > 0 }

// Revision returns the newest view's revision, 0 before the first Reset.
func (h *History) Revision() int64 { return h.revision }

// Policy returns the newest view's policy and the revision at which it was
// written; nil where there is none. The policy is shared: do not change it.
func (h *History) Policy() (p *quota.Policy, revision int64) {
	t := h.newest()
	return t.policy, t.revision
}

// Has reports whether the newest view has an instance.
func (h *History) Has(id string) bool { return h.members[id] != nil }

// newest returns the newest view's terms; those without a policy before the first Reset.
func (h *History) newest() *terms {
	if !h.Started() {
		return newTerms(nil, 0)
	}
	return h.terms[len(h.terms)-1].terms
}

// Instances returns the number of instances that the newest view has, whether
// or not they take part yet.
func (h *History) Instances() int { return len(h.members) }

// put adds m to the newest view and returns the member that it replaced.
func (h *History) put(m *member) (old *member) {
	if old = h.members[m.id]; old != nil {
		m.row = old.row
		h.rows[m.row] = rowOf(m)
	} else {
		m.row = len(h.rows)
		h.rows = append(h.rows, rowOf(m))
	}
	h.members[m.id] = m
	return old
}

// remove takes id out of the newest view and returns its member.
func (h *History) remove(id string) *member {
	old := h.members[id]
	delete(h.members, id)
	if old != nil {
		last := h.rows[len(h.rows)-1]
		h.rows[old.row], last.row = last, old.row
		h.rows[len(h.rows)-1] = row{}
		h.rows = h.rows[:len(h.rows)-1]
	}
	return old
}

// changed returns when the newest view began to be held.
func (h *History) changed() int64 {
	if len(h.log) == 0 {
		return h.since
	}
	return h.log[len(h.log)-1].at
}

// change returns the change with a number, one of the log's.
func (h *History) change(number int64) *delta {
	return &h.log[len(h.log)-1-int(h.changes-number)]
}

// older returns how many of the log's changes were applied before the instant
// at. The views that those ended were not held at at any more.
func (h *History) older(at int64) int {
	n, _ := slices.BinarySearchFunc(h.log, at, func(d delta, at int64) int {
		if d.at < at {
			return -1
		}
		return 1
	})
	return n
}

// sub is a-b, held within int64.
func sub(a, b int64) int64 {
	d := a - b
	if (a >= b) != (d >= 0) {
		if a >= b {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return d
}

// add is a+b, held within int64.
func add(a, b int64) int64 {
	if b == math.MinInt64 {
		return sub(sub(a, math.MaxInt64), 1)
	}
	return sub(a, -b)
}
