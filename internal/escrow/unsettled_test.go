package escrow

import (
	"slices"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// What a write has done that etcd did not answer, by the next total that is known: it took 3 permits of part 100, and gave 2
// of part 99 back.
func TestAnUnansweredWriteIsSettled(t *testing.T) {
	t.Parallel()
	of, before := protocol.Part{Number: 100, Counted: 10}, protocol.Part{Number: 99, Counted: 10}
	verdict := &Verdict{Cluster: 1}
	known := Total{Limit: 20, Out: 5, Cluster: 1, Writes: 40, Newest: 99, Parts: []int64{5}, Recent: []uint32{8}}
	took, back := []Back{{3, of}}, []Back{{2, before}}
	for _, c := range []struct {
		name     string
		own      bool     // it was committed
		others   []uint32 // names of writes after that; 0: an operator has corrected the total
		withheld bool
		revision int64
		want     []Back
		waits    bool // it is not decided
	}{
		{name: "committed", own: true, revision: 11, want: took},
		{name: "committed, and others have written", own: true, others: []uint32{5, 6, 7}, revision: 14, want: took},
		{name: "others came first", others: []uint32{5}, revision: 11, want: back},
		{name: "others came first, and have written more", others: []uint32{5, 6, 7}, revision: 14, want: back},
		{name: "nobody has written: it may be committed yet", revision: 10, waits: true},
		{name: "an operator has counted what is in hand after it", own: true, others: []uint32{0, 5}, revision: 13},
		{name: "an operator came first", others: []uint32{0, 5}, revision: 12},
		{name: "too many have written since", own: true, others: make([]uint32, recent), revision: 50},
		{name: "the store went back", others: []uint32{5}, revision: 9},
		{name: "nothing is handed out", own: true, withheld: true, revision: 12},
	} {
		p := Purse{Part: of, Taken: 1}
		p.Read(text(t, known), 10, verdict)
		next, n, ok := p.Next(Rule{Limit: 20, Instances: 1, Share: 4, Now: 1, Nonce: 77}, Use{Need: 4, By: 1}, Back{2, before}, verdict)
		if !ok || n != 3 {
			t.Fatalf("it takes %d", n)
		}
		p.Unanswered(next, n, Back{2, before})
		total := known
		if c.own {
			total = next
		}
		for i, name := range c.others {
			if c.name == "too many have written since" {
				name = uint32(i + 1)
			}
			total.Writes++
			total.name(name)
		}
		if c.withheld {
			total.Withheld, total.From = wentBack, 200
		}
		p.Read(text(t, total), c.revision, verdict)
		if got := p.Regained(); !slices.Equal(got, c.want) || (p.unsettled != nil) != c.waits || p.Taken != 1 {
			t.Errorf("%s: %+v is had, want %+v; undecided: %v", c.name, got, c.want, p.unsettled != nil)
		}
		if got := p.Regained(); len(got) > 0 {
			t.Errorf("%s: %+v is had again", c.name, got)
		}
	}
}

// A later write of one's own, and a total that is heard, decide an unanswered write too. A restore ends it.
func TestWhatSettlesAnUnansweredWrite(t *testing.T) {
	t.Parallel()
	of, verdict := protocol.Part{Number: 100, Counted: 10}, &Verdict{Cluster: 1}
	rule, back := Rule{Limit: 20, Instances: 1, Share: 4, Now: 1, Nonce: 77}, Back{2, of}
	sent := func() (p Purse, next Total) {
		p = Purse{Part: of}
		p.Read(text(t, Total{Limit: 20, Out: 2, Cluster: 1, Writes: 1, Newest: 100, Parts: []int64{2}, Recent: []uint32{8}}), 10, verdict)
		next, n, _ := p.Next(rule, Use{Look: true}, back, verdict)
		p.Unanswered(next, n, back)
		return p, next
	}
	p, _ := sent()
	later := rule
	later.Nonce = 78
	own, n, _ := p.Next(later, Use{Need: 1}, Back{}, verdict)
	p.Committed(own, n, 11, verdict)
	if got := p.Regained(); !slices.Equal(got, []Back{back}) {
		t.Errorf("after a write of its own %+v is had", got)
	}
	p, next := sent()
	p.Hear(next, 11)
	if got := p.Regained(); len(got) > 0 || p.unsettled != nil {
		t.Errorf("%+v is had, which was given back", got)
	}
	p, _ = sent()
	p.Restored(0)
	p.Hear(own, 12)
	if got := p.Regained(); len(got) > 0 || p.unsettled != nil {
		t.Errorf("after a restore %+v is had", got)
	}
	p, next = sent()
	for range mostUnanswered {
		p.Unanswered(next, 0, back)
	}
	if n := len(p.unsettled.writes); n != mostUnanswered {
		t.Errorf("%d writes are remembered", n)
	}
}
