package escrow

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// When something is handed out again that is withheld: in the next window or, of a sliding limit, in the part in
// which nothing of before the restore counts. Whoever takes then is given permits.
func TestWhatIsWithheldResumes(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour)
	for name, c := range map[string]struct {
		sliding bool
		total   *Total
		mark    MarkAt
		want    int64
	}{
		"nothing is withheld":         {true, nil, MarkAt{Mark: Mark{Cluster: 2}, Revision: 1, AnsweredBy: 2}, 0},
		"an hour":                     {false, &Total{Cluster: 1}, MarkAt{Mark: Mark{Cluster: 2}, Revision: 1, AnsweredBy: 2}, 11 * hour},
		"an hour without a total":     {false, nil, MarkAt{Mark: AfterRestore(2, 10*hour+hour/3, 0), Revision: 1, AnsweredBy: 2}, 11 * hour},
		"of another cluster":          {true, &Total{Cluster: 1}, MarkAt{Mark: Mark{Cluster: 2}, Revision: 1, AnsweredBy: 2}, 10*hour + hour/2 + 103*hour/100},
		"noted":                       {true, &Total{Cluster: 2, Withheld: wentBack, From: 1060}, MarkAt{Mark: Mark{Cluster: 2}, Revision: 1, AnsweredBy: 2}, 1060 * hour / 100},
		"without a total":             {true, nil, MarkAt{Mark: AfterRestore(2, 1033*hour/100, 0), Revision: 1, AnsweredBy: 2}, (1033 + 104) * hour / 100},
		"no mark is there":            {true, nil, MarkAt{AnsweredBy: 2}, 10*hour + hour/2 + 104*hour/100},
		"a mark of another cluster":   {true, nil, MarkAt{Mark: Mark{Cluster: 1}, Revision: 1, AnsweredBy: 2}, 10*hour + hour/2 + 104*hour/100},
		"a mark that cannot be read":  {true, nil, MarkAt{Revision: 1, AnsweredBy: 2, Bad: true}, 0},
		"a total that cannot be read": {true, &Total{Cluster: 2, Withheld: unreadable}, MarkAt{Mark: Mark{Cluster: 2}, Revision: 1, AnsweredBy: 2}, 0},
	} {
		limit := quota.Limit{Permits: 5000, Window: time.Hour, Sliding: c.sliding}
		at := func(wall int64) (protocol.Budget, Purse, *Verdict) {
			b := protocol.BudgetAt(limit, time.UTC, wall)
			p, s := Purse{Part: b.Part()}, c.mark.Of(b.Since(), false)
			if p.Read(nil, 0, s); c.total != nil {
				text, err := Encode(*c.total)
				if err != nil {
					t.Fatal(err)
				}
				p.Read([]byte(text), 5, s)
			}
			return b, p, s
		}
		b, p, _ := at(10*hour + hour/2)
		got := p.Resumes(&b)
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, time.Unix(0, got).UTC(), time.Unix(0, c.want).UTC())
		}
		if c.total != nil || c.mark.Before == 0 || !c.sliding {
			continue // a mark without Before is replaced before anything is taken
		}
		for wall, takes := range map[int64]bool{got - 1: false, got: true} {
			_, p, s := at(wall)
			if _, n, _ := p.Next(Rule{Limit: 5000, Instances: 1, Share: 9}, Use{Need: 1}, Back{}, s); (n > 0) != takes {
				t.Errorf("%s: at %v %d are taken", name, time.Unix(0, wall).UTC(), n)
			}
		}
	}
}

// Of a limit in flight each instance, and who reads a fleet, says the same instant, by which the first of them has gone on. None
// has a part before, or two where whoever has noticed the loss wrote from which part on the total is valid again.
func TestAllSayWhenALimitInFlightResumes(t *testing.T) {
	t.Parallel()
	limits, err := quota.ParseLimits("20 inflight hold=1m")
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: limits}.WithDefaults()
	lost := time.Date(2026, 11, 30, 9, 2, 14, 100_000_000, time.UTC).UnixNano()
	const part = int64(time.Minute) / quota.HoldParts
	for name, c := range map[string]struct {
		total *Total
		mark  Mark
	}{
		"without a total": {nil, AfterRestore(2, lost, policy.ClockError)},
		"noted":           {&Total{Cluster: 2, Withheld: wentBack, From: lost/part + 11}, Mark{Cluster: 2}},
	} {
		said := map[int64]bool{}
		// at returns the purse of an instance at an instant, and whether that takes a permit then.
		at := func(b protocol.Budget) (p Purse, takes bool) {
			mark := MarkAt{Mark: c.mark, Revision: 1, AnsweredBy: 2}
			v := mark.Of(b.Since(), false)
			p.Part = b.Part()
			if p.Read(nil, 0, v); c.total != nil {
				text, err := Encode(*c.total)
				if err != nil {
					t.Fatal(err)
				}
				p.Read([]byte(text), 5, v)
			}
			_, n, _ := p.Next(Rule{Limit: 20, Instances: 1, Share: 1}, Use{Need: 1, By: 1}, Back{}, v)
			return p, n > 0
		}
		for hash := range uint64(100) {
			for later := int64(0); later < 8*part; later += part / 3 {
				b := protocol.BudgetOf(limits[0], &policy, time.UTC, lost+later, hash)
				if hash == 0 {
					b = protocol.BudgetAt(limits[0], time.UTC, lost+later)
				}
				p, _ := at(b)
				said[p.Resumes(&b)] = true
			}
		}
		if len(said) != 1 {
			t.Errorf("%s: they say %d instants", name, len(said))
			continue
		}
		for resumes := range said {
			for hash := range uint64(100) {
				_, before := at(protocol.BudgetOf(limits[0], &policy, time.UTC, resumes-part-1, hash))
				if _, then := at(protocol.BudgetOf(limits[0], &policy, time.UTC, resumes, hash)); before || !then {
					t.Errorf("%s: an instance takes a part before: %v, and then: %v", name, before, then)
				}
			}
		}
	}
}

// What instances that have ended had of a limit is back, at the instant that is shown, for instances with whatever beginning
// of their parts of time, and not for all of them a part before. Of an hour of the clock it is back with its end.
func TestWhenTheRestIsBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 20, 43, 7, 0, time.UTC).UnixNano()
	for _, text := range []string{"20 inflight hold=40s", "20 inflight hold=2m", "5000/h sliding", "5000/h"} {
		limits, err := quota.ParseLimits(text)
		if err != nil {
			t.Fatal(err)
		}
		p := quota.Policy{Limits: limits}.WithDefaults()
		w := protocol.BudgetAt(limits[0], time.UTC, now)
		of := w.Part()
		total := Total{Newest: of.Number - 1, Parts: []int64{0, 3, 4}} // the newest of which something is out is of.Number-2
		back, carried := total.Back(&w), total
		carried.Carried = []Carried{{N: 1, Part: of.Number + 1}}
		if later := carried.Back(&w); later != back+w.After(3)-w.Start && w.ByParts() {
			t.Errorf("%s: what is carried is back %v later", text, time.Duration(later-back))
		}
		if !w.ByParts() {
			if back != w.End {
				t.Errorf("%s: back at %v", text, time.Unix(0, back).UTC())
			}
			continue
		}
		counts := func(wall int64) (n int) {
			for hash := range uint64(100) {
				at := protocol.BudgetOf(limits[0], &p, time.UTC, wall, hash)
				if part := at.Part(); of.Number-2 > part.Number-part.Counted {
					n++
				}
			}
			return n
		}
		length := w.After(1) - w.Start
		if n, before := counts(back), counts(back-length-1); n != 0 || before != 100 {
			t.Errorf("%s: it counts for %d of 100 instances when it is back, and for %d a part before", text, n, before)
		}
	}
}
