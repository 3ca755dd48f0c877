package escrow

import (
	"testing"

	"pgregory.net/rapid"
)

// account is a naive etcd with the total of one key's window.
type account struct {
	value    []byte
	revision int64 // of the value; 0: there is none
	cluster  uint64
}

// holder is an instance with a purse, and what it has issued of it.
type holder struct {
	purse Purse
	used  int64
}

// message is a transaction on its way: a value to write, if the total is at a revision.
type message struct {
	value    string
	revision int64
}

func (s *account) commit(m message) bool {
	if s.revision != m.revision {
		return false
	}
	s.value, s.revision = []byte(m.value), s.revision+1
	return true
}

func (s *account) verdict() *Verdict { return &Verdict{Cluster: s.cluster} }

func (h *holder) read(s *account) { h.purse.Read(s.value, s.revision, s.verdict()) }

// next has an instance make a transaction by what it knows.
func (h *holder) next(s *account, r Rule, need, back int64) (sent Total, n int64, m message, ok bool) {
	if sent, n, ok = h.purse.Next(r, Use{Used: h.used, Need: need}, Back{N: back}, s.verdict()); !ok {
		return sent, n, m, false
	}
	text, err := Encode(sent)
	if err != nil {
		panic(err)
	}
	return sent, n, message{text, h.purse.Revision()}, true
}

// write has an instance read, and write the total for a use and a give-back, if there is anything to write. The
// write is committed, and the answer heard.
func (h *holder) write(s *account, r Rule, u Use, back Back) (next Total, n int64, ok bool) {
	h.read(s)
	if next, n, ok = h.purse.Next(r, u, back, s.verdict()); !ok {
		return next, n, false
	}
	text, err := Encode(next)
	if err != nil || !s.commit(message{text, h.purse.Revision()}) {
		panic("a condition that does not hold, or no text")
	}
	h.purse.Committed(next, n, s.revision, s.verdict())
	return next, n, true
}

// take has an instance send a transaction, after it has read if it knows nothing better. It
// reports whether the transaction was committed.
func (h *holder) take(s *account, r Rule, need int64, read, answered bool) (n int64, ok bool) {
	if read {
		h.read(s)
	}
	sent, n, m, ok := h.next(s, r, need, 0)
	if !ok || !s.commit(m) {
		return n, false
	}
	if answered {
		h.purse.Committed(sent, n, s.revision, s.verdict())
	}
	return n, true
}

// giveBack has an instance give permits back that its purse has no more: it sends again what is
// refused for good. copies is how often a transaction is executed: the last answer is heard. before
// does something before each time.
func (h *holder) giveBack(s *account, r Rule, back int64, copies func() int, before func(message)) {
	h.read(s)
	for range 4 {
		sent, n, m, ok := h.next(s, r, 0, back)
		if !ok {
			return
		}
		committed := false
		for range copies() {
			before(m)
			committed = s.commit(m)
		}
		if committed {
			h.purse.Committed(sent, n, s.revision, s.verdict())
			return
		}
		if !h.purse.Refused(sent, s.value, s.revision, s.verdict()) {
			return
		}
	}
}

func (s *account) out() int64 { return ReadTotal(s.value, s.cluster).Out }

// Against a naive store: whatever is lost, late or comes twice, what all purses hold is taken of the
// total, and that is within the largest limit so far.
func TestPursesHoldWhatIsTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &account{cluster: 7}
		all := make([]holder, rapid.IntRange(1, 4).Draw(t, "instances"))
		limit := rapid.Int64Range(1, 60).Draw(t, "limit")
		most := limit
		var late []message
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h := &all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			take := func(h *holder, read, answered bool) {
				r := Rule{Limit: limit, Instances: int64(len(all)), Share: rapid.Int64Range(-1, 20).Draw(t, "share")}
				h.take(s, r, rapid.Int64Range(0, 70).Draw(t, "need"), read, answered)
			}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				limit = rapid.Int64Range(1, 60).Draw(t, "limit")
				most = max(most, limit)
			case 1: // gives back: the purse shrinks first
				back := h.purse.Taken - h.used
				h.purse.Taken -= back
				h.giveBack(s, Rule{Limit: limit, Instances: 2, Share: -1}, back, func() int { return rapid.IntRange(0, 2).Draw(t, "copies") }, func(m message) {
					late = append(late, m)
					if o := rapid.IntRange(0, 2*len(all)).Draw(t, "between"); o < len(all) && &all[o] != h {
						take(&all[o], true, true)
					}
				})
			case 2, 3:
				h.used += rapid.Int64Range(0, h.purse.Taken-h.used).Draw(t, "issued")
			case 4: // a process ends, and what it had is stranded
				*h = holder{}
			case 5: // a copy comes late
				if len(late) > 0 {
					s.commit(late[rapid.IntRange(0, len(late)-1).Draw(t, "copy")])
				}
			default:
				take(h, rapid.Bool().Draw(t, "read"), rapid.IntRange(0, 4).Draw(t, "answer") > 0)
			}
			sum := int64(0)
			for i := range all {
				sum += all[i].purse.Taken
			}
			if sum > s.out() || s.out() > most {
				t.Fatalf("purses hold %d, %d are taken, of %d", sum, s.out(), most)
			}
		}
	})
}

// A give-back that another instance overtakes is sent again.
func TestAGiveBackIsSentAgain(t *testing.T) {
	t.Parallel()
	r := Rule{Limit: 100, Instances: 2, Share: -1}
	s := &account{cluster: 7}
	var a, b holder
	a.take(s, r, 10, true, true)
	a.purse.Taken -= 4
	first := true
	a.giveBack(s, r, 4, func() int { return 1 }, func(message) {
		if first {
			b.take(s, r, 20, true, true)
		}
		first = false
	})
	if s.out() != 26 {
		t.Errorf("%d are taken, want 6 and 20", s.out())
	}
}

// What is left is had: the last permit too, by whoever wants it.
func TestPursesTakeAllThatIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, limit := &account{cluster: 7}, rapid.Int64Range(1, 200).Draw(t, "limit")
		all := make([]holder, rapid.IntRange(1, 5).Draw(t, "instances"))
		r := Rule{Limit: limit, Instances: int64(len(all)), Share: rapid.Int64Range(-1, 50).Draw(t, "share")}
		issued := int64(0)
		for issued < limit {
			h := &all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			if h.purse.Taken == h.used {
				if n, ok := h.take(s, r, 1, true, true); !ok || n < 1 {
					break // others have what is left in hand
				}
			}
			h.used++
			issued++
		}
		hand := int64(0)
		for i := range all {
			hand += all[i].purse.Taken - all[i].used
		}
		if issued+hand != limit {
			t.Fatalf("%d issued and %d in hand, of %d", issued, hand, limit)
		}
	})
}

// A store that went back, or has a total of another cluster, hands out nothing more in the window.
func TestAPurseNoticesARestoredStore(t *testing.T) {
	t.Parallel()
	r := Rule{Limit: 100, Instances: 2, Share: -1}
	for _, step := range []struct {
		name    string
		restore func(s *account, backup account)
		because string
	}{
		{"an older value", func(s *account, b account) { *s = b }, wentBack},
		{"no value", func(s *account, _ account) { *s = account{cluster: 7} }, wentBack},
		{"another cluster", func(s *account, b account) { *s = b; s.cluster = 8 }, otherCluster},
	} {
		s := &account{cluster: 7}
		var a, b holder
		a.take(s, r, 1, true, true)
		backup := *s
		a.take(s, r, 40, true, true)
		step.restore(s, backup)
		if !a.purse.Of(s.verdict()) {
			a.purse = Purse{Taken: a.used}
		}
		a.take(s, r, 60, true, true) // it says so
		b.take(s, r, 1, true, true)
		if b.purse.Taken != 0 || b.purse.Withheld() != step.because || b.purse.Left(r.Limit) != 0 {
			t.Errorf("%s: a newcomer has %d permits, withheld %q, want none, %q", step.name, b.purse.Taken, b.purse.Withheld(), step.because)
		}
	}
}

// A value that cannot be read hands nothing out.
func TestAPurseReadsNothingIntoRubbish(t *testing.T) {
	t.Parallel()
	var p Purse
	s := &Verdict{Cluster: 7}
	p.Read([]byte("rubbish"), 3, s)
	next, n, ok := p.Next(Rule{Limit: 10, Instances: 1, Share: -1}, Use{Need: 1}, Back{}, s)
	if ok || n != 0 || p.Left(10) != 0 || p.Withheld() != unreadable {
		t.Errorf("it sends %+v (%v) for %d permits, withheld %q", next, ok, n, p.Withheld())
	}
}
