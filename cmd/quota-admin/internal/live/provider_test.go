package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

var start = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// look is what one look finds: the instances, by name, and what all of them together
// have issued and been refused since they began.
type look struct {
	names           []string
	leaving         string // has announced its end
	issued, refused int64
}

func (l look) fleet(now time.Time) *protocol.Fleet {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}.WithDefaults()
	f := &protocol.Fleet{Provider: "p", Policy: protocol.Stored{Provider: "p", Policy: p, Revision: 1}}
	for i, name := range l.names {
		r := &protocol.Report{Time: now, State: quota.StateActive, WindowStart: now.Truncate(time.Second)}
		if i == 0 {
			r.Used, r.UsedBefore, r.Refused = l.issued, l.issued, l.refused
		}
		s := protocol.InstanceStatus{Instance: protocol.Instance{ID: name + ".1", Name: name}, Report: r}
		if name == l.leaving {
			s.Instance.Until = now
		}
		f.Instances = append(f.Instances, s)
	}
	return f
}

// Each value of a line stands under its column.
func TestALineHasLoans(t *testing.T) {
	f := look{names: []string{"a", "b"}}.fleet(start)
	r := f.Instances[1].Report
	r.Waiting, r.Borrowed, r.Hosts, r.Lent, r.Guests, r.PolicyRevision = 1, 30, 4, 5, 2, 6
	r.State, r.Debt = quota.StateActive, 9
	p := newProvider("p")
	p.see(start, f, nil)
	f.Instances[0].Report = nil
	for i, want := range []map[string]any{
		{"borrowed": nil, "borrowed_from": nil, "lent": nil, "lent_to": nil, "policy_revision": nil, "problem": ""},
		{"waiting": int64(1), "borrowed": int64(30), "borrowed_from": int64(4), "lent": int64(5), "lent_to": int64(2), "policy_revision": int64(6), "problem": "", "state": cause.PaysDebt},
	} {
		line := p.Line(&f.Instances[i], start)
		if len(line) != len(Instances) {
			t.Fatalf("%d values of %d columns", len(line), len(Instances))
		}
		for n, c := range Instances {
			if v, ok := want[c.Name]; ok && line[n] != v {
				t.Errorf("instance %d: %s is %v, want %v", i, c.Name, line[n], v)
			}
		}
	}
}

func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name  string
		looks []look // one a second
		want  []string
	}{
		{"the first look is no event", []look{{names: []string{"a", "b"}}}, nil},
		{"a join", []look{{names: []string{"a"}}, {names: []string{"a", "b"}}}, []string{"Joined b at 1"}},
		{"a leave that was seen before", []look{{names: []string{"a", "b"}, leaving: "b"}, {names: []string{"a"}}}, []string{"Left b at 0"}},
		{"many at once", []look{{names: []string{"a"}}, {names: []string{"a", "h", "g", "f", "e", "d", "c", "b"}}},
			[]string{"Joined b, c, d, e, f, 2 more at 1"}},
		{"the begin of refusals that a page finds is unknown", refusing(0, 8), []string{"Refusals ended at 13"}},
		{"refusals that begin and end", refusing(4, 8), []string{"Refusals began at 4", "Refusals ended at 13"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProvider("p")
			for i, l := range test.looks {
				now := start.Add(time.Duration(i)*time.Second + 100*time.Millisecond)
				p.see(now, l.fleet(now), nil)
			}
			var got []string
			for _, e := range p.Events {
				got = append(got, fmt.Sprintf("%s at %d", e.Text, (e.At-start.UnixMilli())/1000))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What became of instances between two looks, by what their keys said last. It may be that nobody looked for a while.
func TestEndsAreEvents(t *testing.T) {
	type ends map[string]float64 // the announced end of each instance, in seconds; 0: none
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, test := range []struct {
		name        string
		there       string // at the first look
		seen        ends   // at the first look
		told        ends   // by etcd, at the second one
		next        float64
		unexplained string
		want        string
	}{
		{"an end that was seen before", "a b", ends{"b": 0.5}, nil, 10, "", "Left b at 0.5"},
		{"an end that nobody has seen", "a b", nil, ends{"b": 3}, 10, "b", "Left b at 3"},
		{"an end that was brought forward", "a b", ends{"b": 60}, ends{"b": 3}, 10, "b", "Left b at 3"},
		{"an end by a clock that is ahead", "a b", nil, ends{"b": 10.4}, 10, "b", "Left b at 10"},
		{"a lease that ended", "a b", nil, ends{"b": 0}, 10, "b", "Lost b within the next 10s from 0 to 10"},
		{"a lease that ended between two looks of a page", "a b", nil, ends{"b": 0}, 1, "b", "Lost b from 0 to 1"},
		{"a lease that ended before the announced end", "a b", nil, ends{"b": 60}, 10, "b", "Lost b within the next 10s from 0 to 10"},
		{"etcd does not tell", "a b", nil, nil, 10, "b", "Gone b within the next 10s (left or lost: etcd does not tell) from 0 to 10"},
		{"etcd does not tell, and a later end was announced", "a b", ends{"b": 60}, nil, 10, "b", "Gone b within the next 10s (left or lost: etcd does not tell) from 0 to 10"},
		{"one of each", "a b c d e", ends{"e": 1}, ends{"b": 0, "c": 5}, 10, "b c d", "Lost b within the next 10s from 0 to 10; Gone d within the next 10s (left or lost: etcd does not tell) from 0 to 10; Left e at 1; Left c at 5"},
		{"those that leave within a second are one event", "a b c d e", nil, ends{"e": 2.1, "d": 2.9, "c": 3.2, "b": 2.5}, 10, "b c d e", "Left b, d, e at 2.1; Left c at 3.2"},
		{"nobody has gone", "a", nil, nil, 10, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, f := newProvider("p"), look{names: strings.Fields(test.there)}.fleet(start)
			for i := range f.Instances {
				if s := test.seen[f.Instances[i].Instance.Name]; s != 0 {
					f.Instances[i].Instance.Until = at(s)
				}
			}
			p.see(start, f, nil)
			now, next, told := at(test.next), look{names: []string{"a"}}.fleet(at(test.next)), map[string]protocol.Instance{}
			for name, s := range test.told {
				i := protocol.Instance{ID: name + ".1", Name: name}
				if s != 0 {
					i.Until = at(s)
				}
				told[i.ID] = i
			}
			if got := strings.ReplaceAll(strings.Join(p.unexplained(now, next), " "), ".1", ""); got != test.unexplained {
				t.Errorf("etcd is asked for %q, want %q", got, test.unexplained)
			}
			p.see(now, next, told)
			var got []string
			for _, e := range p.Events {
				text := fmt.Sprintf("%s at %v", e.Text, float64(e.At-start.UnixMilli())/1000)
				if e.Until != 0 {
					text = fmt.Sprintf("%s from %v to %v", e.Text, float64(e.At-start.UnixMilli())/1000, float64(e.Until-start.UnixMilli())/1000)
				}
				got = append(got, text)
			}
			if got := strings.Join(got, "; "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// An outage and a pause that a provider asked for are events with an end.
func TestOutagesAndPausesAreEvents(t *testing.T) {
	p := newProvider("p")
	w := &Watcher{seen: map[string]*Provider{"p": p}}
	f := look{names: []string{"a"}}.fleet(start)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	f.Throttle = &protocol.Throttle{Asks: []protocol.Ask{{By: "a.1", At: at(-5), Until: at(10), Why: "429"}, {By: "b.1", At: at(1000)}}}
	p.see(start, f, nil)
	p.see(at(1), f, nil)
	w.away(at(2), coordinator.ErrPermission) // etcd answers
	w.away(at(3), coordinator.ErrUnreachable)
	w.away(at(4), coordinator.ErrUnreachable)
	w.back(at(23))
	w.back(at(24))
	want := []Event{
		{at(-5).UnixMilli(), at(10).UnixMilli(), "Pause", "Paused by the provider, as a.1 was told: 429"},
		{at(3).UnixMilli(), at(23).UnixMilli(), "Outage", "etcd does not answer: by rule hold, instances go on with the shares they had; new ones get none"},
		{at(23).UnixMilli(), 0, "Back", "Back after 20s: etcd answers"},
	}
	if diff := cmp.Diff(want, p.Events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.Fleet.Policy.Policy.Outage = quota.OutageStop
	if got := p.Outage(); got != "by rule stop, instances issue nothing from 2.5s after etcd's last answer on" {
		t.Error(got)
	}
}

// refusing is twenty looks at one instance that refuses something between two of them.
func refusing(from, to int) (looks []look) {
	refused := int64(0)
	for i := range 20 {
		if i >= from && i < to {
			refused += 5
		}
		looks = append(looks, look{names: []string{"a"}, issued: int64(10 * i), refused: refused})
	}
	return looks
}

// Points, trend and events have bounds, however long somebody looks, and so have questions to etcd.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	p := newProvider("p")
	p.see(start, look{names: strings.Fields(strings.Repeat("a ", askedAtMost+1))}.fleet(start), nil)
	if n := len(p.unexplained(start, look{}.fleet(start))); n != askedAtMost {
		t.Errorf("of %d instances etcd is asked at one look", n)
	}
	for i := range 1000 {
		now := start.Add(time.Duration(i)*time.Second + 100*time.Millisecond)
		l := look{names: []string{"a", fmt.Sprint("b", i)}, issued: int64(10 * i)}
		p.see(now, l.fleet(now), nil)
	}
	if len(p.Points) != PointsAtMost || len(p.Row.Trend) > trendAtMost || len(p.Events) != eventsAtMost {
		t.Errorf("%d points, %d in the trend, %d events", len(p.Points), len(p.Row.Trend), len(p.Events))
	}
}

// Of a long limit alone the dashboard's row and chart have no limit that nobody has set.
func TestALongLimitAloneHasNoRate(t *testing.T) {
	p := newProvider("p")
	for i := range 20 {
		now := start.Add(time.Duration(i) * time.Second)
		f := look{names: []string{"a"}, issued: int64(5 * i)}.fleet(now)
		f.Policy.Policy.Limits[0] = quota.Limit{Permits: 1000, Window: time.Hour}
		p.see(now, f, nil)
	}
	if p.Row.Limits != "1000/h" || p.Row.Rate != nil || len(p.Points) < 10 {
		t.Errorf("%+v, %d points", p.Row, len(p.Points))
	}
	for _, point := range p.Points {
		if point.Limit != nil {
			t.Fatalf("the chart has a limit of %v a second", *point.Limit)
		}
	}
}

// When a long limit is used up, at the rate of the fleet's reports; nothing is said of one
// that lasts until its window ends.
func TestALongLimitsEndIsForetold(t *testing.T) {
	p := newProvider("p")
	if got := p.Budgets(); got == nil || len(got) != 0 {
		t.Errorf("%#v, want an empty list", got)
	}
	for i := range 20 {
		now := start.Add(time.Duration(i) * time.Second)
		f := look{names: []string{"a"}, issued: int64(5 * i)}.fleet(now)
		for _, left := range []int64{500, 50_000} {
			b := protocol.BudgetAt(quota.Limit{Permits: 50_000, Window: time.Hour}, time.UTC, start.UnixNano())
			f.Budgets = append(f.Budgets, protocol.BudgetUse{Budget: b, Left: left})
		}
		p.see(now, f, nil)
		if all := p.Budgets(); i == 0 && !all[0].Exhausted.IsZero() {
			t.Errorf("before a rate is known: %+v", all)
		}
	}
	if all := p.Budgets(); !all[0].Exhausted.Equal(start.Add(119*time.Second)) || !all[1].Exhausted.IsZero() {
		t.Errorf("at 5/s: %+v", all)
	}
}
