package live

import (
	"strings"
	"testing"
	"time"
)

// An instance whose clock is off by more than a second is named, also where reports are
// looked for every ten seconds only. One late report says nothing.
func TestClocksThatDifferAreTold(t *testing.T) {
	for _, test := range []struct {
		name  string
		ahead time.Duration
		late  bool // one report comes with the fifth look, and was due with the third
		every time.Duration
		want  string
	}{
		{"a clock that is right", 0, false, time.Second, ""},
		{"ahead", 2 * time.Second, false, time.Second, "instance b.1: its clock is 1.9s ahead of this host's: see doctor --ntp"},
		{"behind", -4 * time.Second, false, time.Second, "instance b.1: its clock is 3.1s behind this host's: see doctor --ntp"},
		{"behind, seldom looked at", -30 * time.Second, false, 10 * time.Second, "instance b.1: its clock is 20.1s behind this host's: see doctor --ntp"},
		{"seldom looked at", 0, false, 10 * time.Second, ""},
		{"one late report", 0, true, time.Second, ""},
	} {
		p := newProvider("p")
		for i := range 6 {
			now := start.Add(time.Duration(i) * test.every)
			f := look{names: []string{"a", "b"}}.fleet(now)
			of := i
			if test.late && i > 1 && i < 5 {
				of = i / 4 * 2 // the first one twice, then the third
			}
			f.Instances[1].Report.Time = start.Add(time.Duration(of)*test.every + test.ahead - 100*time.Millisecond)
			p.see(now, f, nil)
			if told := len(p.Status.Troubles) > 0; told && i < clockReports {
				t.Errorf("%s: told after %d reports", test.name, i+1)
			}
			if test.late && i == 4 && p.meter.tracks["b.1"].clock.reports != 1 {
				t.Errorf("the late report is not late: %+v", p.meter.tracks["b.1"].clock)
			}
		}
		if got := strings.Join(p.Status.Troubles, "\n"); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	p := newProvider("p")
	for i := range 4 {
		f := look{names: []string{"a", "b", "c"}}.fleet(start.Add(time.Duration(i) * time.Second))
		p.see(start.Add(time.Duration(i-5)*time.Second), f, nil)
	}
	if got := strings.Join(p.Status.Troubles, "\n"); got != "instance a.1 and 2 more: its clock is 5s ahead of this host's: see doctor --ntp" {
		t.Error(got)
	}
}
