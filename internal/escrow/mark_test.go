package escrow

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// marked is a naive etcd of one provider: its mark, and the totals of its keys' windows.
type marked struct {
	cluster, next uint64 // next is that of the next restore
	revision      int64
	mark          []byte
	markRevision  int64
	totals        map[string]account
}

func (s *marked) copied() marked {
	c := *s
	c.totals = maps.Clone(s.totals)
	return c
}

func (s *marked) read() MarkAt { return ReadMark(s.mark, s.markRevision, s.cluster) }

func (s *marked) write(m Mark) {
	text, err := Encode(m)
	if err != nil {
		panic(err)
	}
	s.revision++
	s.mark, s.markRevision = []byte(text), s.revision
}

// holders is an instance with the purses of keys' windows.
type holders struct {
	of        map[string]*holder
	elsewhere int64  // when it last looked at another store; 0: never
	looked    int64  // when it last looked
	seen      uint64 // the cluster that it follows
}

const (
	markedLimit  = 4
	markedWindow = int64(time.Hour)
	markedBound  = time.Millisecond // on the error of clocks
)

// take has an instance take permits of a key's window, by the mark as it is.
func (h *holders) take(s *marked, name string, start, now, need int64) {
	if h.seen != s.cluster {
		h.notice(s)
	}
	h.looked = now
	m := s.read()
	if next, ok := m.Renewed(h.elsewhere, now, markedBound); ok {
		s.write(next)
		m = s.read()
	}
	verdict, total, own := m.Of(start, true), s.totals[name], h.of[name]
	if own == nil {
		own = &holder{}
		h.of[name] = own
	}
	if !own.purse.Of(verdict) {
		own.purse = Purse{Taken: own.used}
	}
	own.purse.Read(total.value, total.revision, verdict)
	next, n, ok := own.purse.Next(Rule{Limit: markedLimit, Instances: 2, Share: -1}, Use{Used: own.used, Need: need}, Back{}, verdict)
	if !ok {
		return
	}
	text, err := Encode(next)
	if err != nil {
		panic(err)
	}
	s.revision++
	s.totals[name] = account{value: []byte(text), revision: s.revision}
	own.purse.Committed(next, n, s.revision, verdict)
}

// notice has an instance see that the store is another one, or went back: what it has in hand counts
// no more.
func (h *holders) notice(s *marked) {
	h.elsewhere, h.seen = h.looked, s.cluster
	for _, own := range h.of {
		own.purse = Purse{Taken: own.used}
	}
}

// Stores are restored from backups, from before there were marks too, and operators say what the
// provider has counted: no window of a key has more than its limit. And what an operator has given
// the count of is used up to its limit.
func TestMarksKeepRestoredKeysWithinTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &marked{cluster: 1, next: 2, totals: map[string]account{}, revision: 1}
		if rapid.Bool().Draw(t, "set by a version with marks") {
			s.write(Mark{Cluster: 1})
		}
		now := 1000 * markedWindow
		all := []*holders{{of: map[string]*holder{}}, {of: map[string]*holder{}}}
		issued := map[string]int64{} // as the provider has counted
		var backups []marked
		window := func(key int) (string, int64) {
			start := now - now%markedWindow
			return fmt.Sprint(key, " ", start), start
		}
		keys := rapid.IntRange(1, 3).Draw(t, "keys")
		for range rapid.IntRange(20, 80).Draw(t, "steps") {
			name, start := window(rapid.IntRange(0, keys-1).Draw(t, "key"))
			h := all[rapid.IntRange(0, 1).Draw(t, "who")]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				now += rapid.Int64Range(1, markedWindow/4).Draw(t, "time")
			case 1:
				backups = append(backups, s.copied())
			case 2:
				if len(backups) == 0 {
					continue
				}
				restored := backups[rapid.IntRange(0, len(backups)-1).Draw(t, "backup")].copied()
				madeBy := restored.cluster
				restored.cluster, restored.next, restored.revision = s.next, s.next+1, s.revision+1000
				sameID := madeBy == s.cluster && rapid.Bool().Draw(t, "under its old ID")
				if sameID {
					restored.cluster, restored.next = s.cluster, s.next
				}
				*s = restored
				now += int64(5 * markedBound)
				if sameID { // nobody may notice it; an operator says so before anybody takes permits
					s.write(s.read().Withholding(now, markedBound))
				}
			case 3: // an operator, once all have noticed: the count of a key, or that nothing was used
				told := true
				for _, a := range all {
					if a.seen != s.cluster {
						a.notice(s)
					}
				}
				for k := range keys {
					of, _ := window(k)
					told = told && issued[of] <= ReadTotal(s.totals[of].value, s.cluster).Out
				}
				s.revision++
				if told && rapid.Bool().Draw(t, "all") {
					s.write(s.read().WithKeysTold(now, markedBound))
					continue
				}
				text, err := Encode(ReadTotal(s.totals[name].value, s.cluster).Corrected(issued[name], 0, 0, protocol.Part{}, s.cluster))
				if err != nil {
					t.Fatal(err)
				}
				s.totals[name] = account{value: []byte(text), revision: s.revision}
				for _, a := range all { // nobody has any in hand, so the rest is left
					a.of[name] = &holder{}
				}
				h.take(s, name, start, now, 1)
				if got := h.of[name].purse.Taken; (got > 0) != (issued[name] < markedLimit) {
					t.Fatalf("%d are taken after an operator has counted %d of %d", got, issued[name], markedLimit)
				}
			case 4: // a new process
				*h = holders{of: map[string]*holder{}, seen: s.cluster}
			default: // it has had permits in hand, and takes more
				h.take(s, name, start, now, rapid.Int64Range(1, markedLimit).Draw(t, "need"))
				own := h.of[name]
				n := max(0, own.purse.Taken-own.used)
				if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
					n = rapid.Int64Range(0, n).Draw(t, "issued")
				}
				own.used += n
				issued[name] += n
			}
			for name, n := range issued {
				if n > markedLimit {
					t.Fatalf("%d permits of %s, the limit is %d", n, name, markedLimit)
				}
			}
		}
	})
}

// What becomes of a mark, and what it says.
func TestMarks(t *testing.T) {
	t.Parallel()
	const now, bound = int64(1_000_000), 100 * time.Nanosecond
	restored := Mark{Cluster: 2, Before: now + 201}
	said, renewed := restored, restored // the store was restored under the ID that it has: now, and at revision 4
	said.Void, renewed.Void = void, 4
	const left = now - 1000 // when the instance was in another store
	for _, c := range []struct {
		name  string
		mark  Mark
		there bool
		left  int64
		want  Mark
	}{
		{"there is none", Mark{}, false, 0, restored},
		{"an instance knows of another store", Mark{}, false, left, restored},
		{"of another cluster", Mark{Cluster: 1, KeysTold: true}, true, 0, restored},
		{"of this cluster", Mark{Cluster: 2}, true, 0, Mark{Cluster: 2}},
		{"of another cluster, after a restore under that ID", Mark{Cluster: 1, Void: 4}, true, 0, renewed},
		{"set again after a restore, or on an older disk", Mark{Cluster: 2}, true, left, said},
		{"a restore that is known", Mark{Cluster: 2, Before: left + 402, KeysTold: true}, true, left, Mark{Cluster: 2, Before: left + 402, KeysTold: true}},
		{"it may be of before", Mark{Cluster: 2, Before: left + 401, KeysTold: true}, true, left, said},
		{"an operator who does not know of the restore", Mark{Cluster: 2, KeysTold: true}, true, left, said},
		{"a restore that only an operator knew of was before this one", Mark{Cluster: 2, Void: 4}, true, left, said},
		{"an operator's word where nothing was restored", Mark{Cluster: 2, KeysTold: true}, true, 0, Mark{Cluster: 2, KeysTold: true}},
	} {
		m := MarkAt{Mark: c.mark, AnsweredBy: 2}
		if c.there {
			m.Revision = 5
		}
		got, wrote := m.Renewed(c.left, now, bound)
		if got != c.want || wrote != (c.mark != c.want) {
			t.Errorf("%s: %+v, written: %v; want %+v", c.name, got, wrote, c.want)
		}
	}
	withheld := Mark{Cluster: 2, Before: now + 1}
	for _, c := range []struct {
		name string
		mark Mark
		want Mark
	}{
		{"an operator withholds what runs, and nobody vouches for keys any more", Mark{Cluster: 2, KeysTold: true}, said},
		{"of another cluster", Mark{Cluster: 1, Before: now - 1000}, said},
		{"an instance has withheld less", withheld, said},
		{"an instance has withheld more: the operator's clock is behind", Mark{Cluster: 2, Before: now + 202}, Mark{Cluster: 2, Before: now + 202, Void: void}},
		{"it was said before", Mark{Cluster: 2, Void: 4}, said},
	} {
		if got := (MarkAt{Mark: c.mark, Revision: 5, AnsweredBy: 2}).Withholding(now, bound); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	m := MarkAt{Mark: restored, Revision: 5, AnsweredBy: 2}
	told := MarkAt{Mark: m.WithKeysTold(now, bound), Revision: 9, AnsweredBy: 2}
	for _, c := range []struct {
		name    string
		verdict *Verdict
		want    Verdict
	}{
		{"a window of before", m.Of(now, true), Verdict{Cluster: 2, Lost: earlierStore, Told: 0}},
		{"a window of after", m.Of(now+201, true), Verdict{Cluster: 2, Lost: "", Told: 0}},
		{"vouched for", told.Of(now, true), Verdict{Cluster: 2, Lost: "", Told: 9}},
		{"the provider's own count is another matter", told.Of(now, false), Verdict{Cluster: 2, Lost: earlierStore, Told: 0}},
	} {
		c.want.before = c.verdict.before // TestWhatIsWithheldResumes
		if *c.verdict != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, *c.verdict, c.want)
		}
	}
	if at := ReadMark(text(t, said), 7, 2); at.Of(now+999, false).Void != 7 || at.WithKeysTold(now, bound).Void != 7 {
		t.Errorf("totals of before the mark at revision 7 are void: %+v", at)
	}
	if bad := ReadMark([]byte("rubbish"), 3, 2); !bad.Bad || bad.Of(now+999, true).Lost != badMark {
		t.Errorf("rubbish is read as %+v", bad)
	}
}

// An operator who vouches for the totals frees those that a restore withholds, as they are, and no
// later ones, nor what cannot be read.
func TestWhatIsVouchedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total    Total
		revision int64
		left     int64
	}{
		{Total{Out: 4, Cluster: 1}, 3, 6},
		{Total{Out: 4, Cluster: 2, Withheld: wentBack}, 8, 6},
		{Total{Out: 4, Cluster: 2, Withheld: wentBack}, 10, 0},
		{Total{Withheld: unreadable, Cluster: 2}, 3, 0},
		{Total{}, 0, 10},
	} {
		p := Purse{total: c.total, revision: c.revision, verdict: &Verdict{Cluster: 2, Told: 9}}
		if got := p.Left(10); got != c.left {
			t.Errorf("%+v at %d: %d are left, want %d", c.total, c.revision, got, c.left)
		}
	}
}

// A backup without a mark and totals is restored, and an operator counts one key before any instance
// takes permits. That says nothing of another key, which the earlier store has handed out: also to an
// instance that has not followed that store.
func TestACountOfOneKeyOpensNoOther(t *testing.T) {
	t.Parallel()
	const start = 1000 * markedWindow
	s := &marked{cluster: 2, totals: map[string]account{}, revision: 1000}
	text, err := Encode(Total{}.Corrected(1, 0, 0, protocol.Part{}, s.cluster))
	if err != nil {
		t.Fatal(err)
	}
	s.totals["a"] = account{value: []byte(text), revision: 1001}
	h := holders{of: map[string]*holder{}, seen: s.cluster}
	h.take(s, "b", start, start+7, 1)
	h.take(s, "a", start, start+8, 1)
	if a, b := h.of["a"].purse.Taken, h.of["b"].purse.Taken; a == 0 || b != 0 {
		t.Errorf("it takes %d permits of the key that was counted, and %d of the other: want some, and none", a, b)
	}
}

// A store was restored and marked, and goes back later, under the ID that it has. The mark says nothing
// of what was handed out since it was written. So an instance that has seen it writes another one, which
// holds for an instance that knows nothing of it; and an operator's word for the keys is of before.
func TestAMarkedStoreGoesBackUnderItsID(t *testing.T) {
	t.Parallel()
	const start = 1000 * markedWindow
	for _, told := range []bool{false, true} {
		s := &marked{cluster: 2, totals: map[string]account{}, revision: 1000}
		a, b := holders{of: map[string]*holder{}, seen: 2}, holders{of: map[string]*holder{}, seen: 2}
		s.write(AfterRestore(2, start-markedWindow, markedBound))
		if told {
			s.write(s.read().WithKeysTold(start-markedWindow/2, markedBound))
		}
		backup := s.copied()
		a.take(s, "k", start, start+1, markedLimit)
		if taken := a.of["k"].purse.Taken; taken != markedLimit {
			t.Fatalf("%d are taken of a window after the mark", taken)
		}
		*s = backup
		a.of["k"].used = markedLimit
		a.notice(s)
		for i, h := range []*holders{&a, &b} {
			name := fmt.Sprint("k", i) // that of another key, so that no purse knows of more
			if h.take(s, name, start, start+int64(time.Second), 1); h.of[name].purse.Taken != 0 {
				t.Errorf("vouched for: %v: instance %d takes of a window that was handed out before the store went back", told, i)
			}
		}
		if got := s.read().Of(start, false).Lost; got != earlierStore {
			t.Errorf("vouched for: %v: the provider's own window: %q", told, got)
		}
	}
}

// A store comes back with an older disk, after the fleet has run on another one. The totals on that disk are of the ID that
// answers, no purse knows of more, and they may count too little: nothing is handed out of them, nor to an instance that
// comes later, until an operator gives the count.
func TestAStoreComesBackWithAnOlderDisk(t *testing.T) {
	t.Parallel()
	const start = 1000 * markedWindow
	s := &marked{cluster: 2, totals: map[string]account{}, revision: 1000}
	s.write(Mark{Cluster: 2})
	a, b := holders{of: map[string]*holder{}, seen: 2}, holders{of: map[string]*holder{}, seen: 2}
	a.take(s, "k", start, start+1, 1)
	disk := s.copied()
	other := &marked{cluster: 3, totals: map[string]account{}, revision: 1}
	a.take(other, "k", start, start+2, 1)
	*s = disk
	for i, h := range []*holders{&a, &b} {
		if h.take(s, "k", start, start+int64(time.Second), 1); h.of["k"].purse.Taken != 0 || h.of["k"].purse.Withheld() != earlierStore {
			t.Errorf("instance %d takes %d by a count that may be too low; withheld: %q", i, h.of["k"].purse.Taken, h.of["k"].purse.Withheld())
		}
	}
	s.revision++
	s.totals["k"] = account{value: text(t, ReadTotal(s.totals["k"].value, 2).Corrected(2, 0, 0, protocol.Part{}, 2)), revision: s.revision}
	if a.take(s, "k", start, start+int64(2*time.Second), 1); a.of["k"].purse.Taken != 1 {
		t.Errorf("it takes %d once the count is given; withheld: %q", a.of["k"].purse.Taken, a.of["k"].purse.Withheld())
	}
}

// A provider is set again in a restored store without --withhold, and an operator vouches for its keys.
// That opens no window of the provider itself, once an instance comes that knows the earlier store.
func TestAWordForKeysOpensNoWindowOfTheProvider(t *testing.T) {
	t.Parallel()
	const start = 1000 * markedWindow
	s := &marked{cluster: 2, totals: map[string]account{}, revision: 1000}
	s.write(Mark{Cluster: 2})
	s.write(s.read().WithKeysTold(start+7, markedBound))
	h := holders{of: map[string]*holder{}, seen: 1, looked: start + 1}
	h.take(s, "k", start, start+8, 1)
	if got := s.read().Of(start, false).Lost; got != earlierStore {
		t.Errorf("the provider's own window: %q", got)
	}
}

// A store comes back empty under its old cluster ID, and its mark says so. The count that an operator gives then stands:
// an instance that has seen the loss, and knows the window by a revision of the store that is no more, does not undo it.
func TestACountStandsAfterALossUnderTheSameID(t *testing.T) {
	t.Parallel()
	const start = 1000 * markedWindow
	known, err := Encode(Total{Cluster: 2, Out: 4000})
	if err != nil {
		t.Fatal(err)
	}
	counted, err := Encode(Total{}.Corrected(4100, 0, 0, protocol.Part{}, 2))
	if err != nil {
		t.Fatal(err)
	}
	after := MarkAt{Mark: AfterRestore(2, start+1, markedBound), Revision: 3, AnsweredBy: 2}.Of(start, false)
	rule, use := Rule{Limit: 5000, Instances: 1, Share: -1, Now: start + 2}, Use{Used: 4000, Need: 1}
	p := Purse{Taken: 4000}
	p.Read([]byte(known), 900, MarkAt{Mark: Mark{Cluster: 2}, Revision: 20, AnsweredBy: 2}.Of(start, false))
	p.Read(nil, 0, after)
	if _, _, ok := p.Next(rule, use, Back{}, after); ok || p.Left(5000) != 0 || p.Withheld() != earlierStore {
		t.Errorf("%d are left after the loss, withheld %q", p.Left(5000), p.Withheld())
	}
	p.Read([]byte(counted), 9, after)
	if next, n, ok := p.Next(rule, use, Back{}, after); !ok || n == 0 || next.Withheld != "" || p.Left(5000) != 900 {
		t.Errorf("takes %d of %d that are left, withheld %q", n, p.Left(5000), next.Withheld)
	}
}

// A store goes back under its old ID, and has an older total of a key's window than an instance knows, or none. If the
// session has noticed that, an operator's word for the keys that counts then was said after it, and stands, whatever
// the instance knew. If not, the word may be of before: it came with the backup.
func TestAnOperatorsWordAfterAStoreWentBack(t *testing.T) {
	t.Parallel()
	const start, later = 1000 * markedWindow, 1000*markedWindow + int64(time.Second) // by which all clocks say that it was restored
	for _, c := range []struct {
		noticed, before, after bool // was the restore noticed, is a word in the backup, and is one said after
		there                  bool // the backup has the total
		first                  bool // it has read the total before the session has noticed
		again                  bool // it has read the total before the word that is said after, and has not written since
		want                   int64
	}{
		{noticed: true, after: true, there: true, want: 1},
		{noticed: true, after: true, want: 4},
		{noticed: true, before: true, after: true, there: true, want: 1},
		{noticed: true, after: true, there: true, again: true, want: 1},
		{noticed: true, after: true, there: true, first: true, want: 1},
		{noticed: true, there: true},
		{noticed: true, before: true, there: true},
		{noticed: true, before: true},
		{before: true, there: true},
		{before: true},
		{after: true, there: true},
	} {
		s := &marked{cluster: 2, totals: map[string]account{}, revision: 1000}
		h := holders{of: map[string]*holder{"k": {}}, seen: 2}
		s.write(AfterRestore(2, start-markedWindow, markedBound))
		if c.before {
			s.write(s.read().WithKeysTold(start-markedWindow/2, markedBound))
		}
		if c.there {
			h.take(s, "k", start, start+1, 1)
			h.take(s, "k", start, start+1, 2)
		}
		own, backup := h.of["k"], s.copied()
		own.used = own.purse.Taken
		s.revision += 10
		h.take(s, "k", start, start+2, 2)
		if own.purse.Taken != own.used+2 {
			t.Fatalf("%+v: it has %d in hand", c, own.purse.Taken-own.used)
		}
		*s = backup
		read := func() {
			total := s.totals["k"]
			own.purse.Read(total.value, total.revision, s.read().Of(start, true))
		}
		if c.first {
			read()
		}
		if c.noticed {
			h.elsewhere = h.looked
			own.purse.Restored(own.used)
			if next, ok := s.read().Renewed(h.elsewhere, later, markedBound); ok {
				s.write(next)
			}
		} else {
			own.used = own.purse.Taken
		}
		had := own.purse.Taken
		if c.again {
			read()
		}
		if c.after {
			s.revision += 100
			s.write(s.read().WithKeysTold(later+1, markedBound))
		}
		h.take(s, "k", start, later+2, 4)
		if got := own.purse.Taken - had; got != c.want {
			t.Errorf("%+v: it takes %d, want %d; withheld %q", c, got, c.want, own.purse.Withheld())
		}
	}
}

// A store goes back under its old ID, and no process that runs knows of it. Once an operator has said so, what is there
// counts as after a restore under another ID: a total hands out nothing more until he gives the count or vouches for
// those of keys, one that counts by parts until all are over, and permits in hand count no more.
func TestAnOperatorSaysThatTheStoreWentBack(t *testing.T) {
	t.Parallel()
	start := 1000 * markedWindow
	before := MarkAt{Mark: Mark{Cluster: 2}, Revision: 3, AnsweredBy: 2}
	said := MarkAt{Mark: before.Withholding(start+2, markedBound), Revision: 20, AnsweredBy: 2}
	said = ReadMark(text(t, said.Mark), said.Revision, 2)
	told := ReadMark(text(t, said.WithKeysTold(start+3, markedBound)), 25, 2)
	rule := Rule{Limit: 10, Instances: 1, Share: 4, Now: start + 4}
	for _, c := range []struct {
		name     string
		mark     MarkAt
		keys     bool
		revision int64 // of the total
		want     int64 // is taken
	}{
		{"before", before, false, 10, 4},
		{"the provider's", said, false, 10, 0},
		{"a key's", said, true, 10, 0},
		{"he has given the count", said, false, 21, 4},
		{"he has vouched for keys", told, true, 10, 4},
		{"for keys alone", told, false, 10, 0},
		{"taken since he has", told, true, 26, 4},
	} {
		p := Purse{}
		p.Read(text(t, Total{Cluster: 2, Out: 5}), c.revision, c.mark.Of(start, c.keys))
		_, n, _ := p.Next(rule, Use{Need: 1}, Back{}, c.mark.Of(start, c.keys))
		if n != c.want || (p.Withheld() != "") != (n == 0) {
			t.Errorf("%s: takes %d, want %d; withheld %q", c.name, n, c.want, p.Withheld())
		}
	}

	p := Purse{Taken: 4}
	p.Committed(Total{Cluster: 2, Out: 4}, 0, 10, before.Of(start, false))
	if p.Of(said.Of(start, false)) || !p.Of(before.Of(start, false)) {
		t.Error("what it has in hand counts on, or did not count before")
	}
	if _, _, ok := p.Next(rule, Use{}, Back{N: 2}, said.Of(start, false)); ok {
		t.Error("a give-back writes a total that is void, which then counts")
	}

	parts := protocol.Budget{Limit: quota.Limit{Permits: 10, Window: time.Hour, Sliding: true}, Start: start, End: start + markedWindow/100}
	p = Purse{Part: parts.Part()}
	p.Read(text(t, Total{Cluster: 2, Out: 5, Newest: p.Part.Number, Parts: []int64{5}}), 10, said.Of(start, false))
	next, n, ok := p.Next(rule, Use{Need: 1}, Back{}, said.Of(start, false))
	if !ok || n != 0 || next.From != p.Part.Number+p.Part.Counted+1 {
		t.Errorf("takes %d of a sliding limit, and goes on from part %d, now %d", n, next.From, p.Part.Number)
	}
	p.Committed(next, n, 21, said.Of(start, false))
	p = p.In(protocol.Part{Number: next.From + slack, Counted: p.Part.Counted})
	if _, n, _ = p.Next(rule, Use{Need: 1}, Back{}, said.Of(start, false)); n != 4 {
		t.Errorf("takes %d of a sliding limit once all parts are over", n)
	}
}

// text returns the value of an entry in etcd.
func text[T Total | Mark](t *testing.T, v T) []byte {
	t.Helper()
	text, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}
