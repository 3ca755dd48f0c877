package hotpath

import (
	"context"
	"fmt"
	"strings"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/peers"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// Run measures and reports. The samples are for the raw results.
func Run(ctx context.Context, o measure.Options) (*report.Section, *measure.Samples, error) {
	own, stop, err := granted()
	if err != nil {
		return nil, nil, err
	}
	others, err := peers.Granted()
	if err != nil {
		return nil, nil, err
	}
	cases := floors()
	for _, c := range append(own, others...) {
		cases = append(cases, measure.Case{Name: "granted/" + c.Name, Call: c.Call, Beside: besideGranted(c.Name)})
	}
	ownRefused, err := refused()
	if err != nil {
		return nil, nil, err
	}
	othersRefused, err := peers.Refused()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range append(ownRefused, othersRefused...) {
		cases = append(cases, measure.Case{Name: "refused/" + c.Name, Call: c.Call, Beside: readMono})
	}
	defer stop()
	s, err := measure.Rounds(ctx, o, cases, measure.Modes())
	if err != nil {
		return nil, nil, err
	}
	return describe(s, cases), s, nil
}

func describe(s *measure.Samples, cases []measure.Case) *report.Section {
	sec := &report.Section{Title: "Granted and refused at once"}
	sec.Text("Nanoseconds of processor time for a call, median of the rounds; then how many times its floor, measured right before it " +
		"in every round: *monotonic-read+add* for what is granted (*time.Now+add* for rule stop), *monotonic-read* for what is refused. " +
		"On n processors at work, the time that passes for a call is about an n-th of that.")
	var rows [][]string
	for _, c := range cases {
		if !s.Has(c.Name + "/goroutines=one") {
			continue
		}
		rows = append(rows, row(s, c.Name))
	}
	sec.Table([]string{"call", "one goroutine", "one a processor", "1,000", "of floor", "of floor, one a processor", "of floor, 1,000", "allocs"}, rows)
	sec.Draw(chart(s, cases, "granted", "A permit, granted"))
	sec.Draw(chart(s, cases, "refused", "A permit, refused"))
	goals(s, sec)
	return sec
}

func row(s *measure.Samples, name string) []string {
	one, procs, many := name+"/goroutines=one", name+"/goroutines=procs", name+"/goroutines=1000"
	ns := func(n string) string { return fmt.Sprintf("%.1f", s.Median(n, measure.CPUUnit)) }
	return []string{
		strings.ReplaceAll(strings.TrimPrefix(name, "granted/"), "/", " "),
		ns(one), ns(procs), ns(many),
		ratio(s, one), ratio(s, procs), ratio(s, many),
		fmt.Sprintf("%.0f", s.Median(one, measure.AllocsUnit)),
	}
}

func ratio(s *measure.Samples, name string) string {
	if r := s.Ratio(name, measure.CPUUnit); r > 0 {
		return fmt.Sprintf("%.2f", r)
	}
	return ""
}

func chart(s *measure.Samples, cases []measure.Case, kind, title string) report.Chart {
	c := report.Chart{File: kind, Title: title + ": one goroutine", Unit: "ns of processor time"}
	for _, k := range cases {
		if !s.Has(k.Name + "/goroutines=one") {
			continue
		}
		name, ok := strings.CutPrefix(k.Name, kind+"/peer=")
		floor, isFloor := strings.CutPrefix(k.Name, "floor=")
		switch {
		case isFloor && floor != "empty-call":
			name = "(floor) " + floor
		case !ok || strings.Contains(name, "limits=") || strings.Contains(name, "changing"):
			continue
		}
		c.Bars = append(c.Bars, report.Bar{
			Label: strings.ReplaceAll(strings.ReplaceAll(name, "/call=", " "), "/outage=", " "),
			Value: s.Median(k.Name+"/goroutines=one", measure.CPUUnit), Ours: strings.HasPrefix(name, "quotient"),
		})
	}
	return c
}

func goals(s *measure.Samples, sec *report.Section) {
	ratio := func(name, mode string) float64 { return s.Ratio(name+"/goroutines="+mode, measure.CPUUnit) }
	for _, call := range []struct{ label, name string }{{"TryAcquire", ourTry}, {"Acquire", ourAcquire}} {
		sec.Aim(call.label+" granted, of monotonic read + add", "%.2f", 1.15, ratio("granted/"+call.name, "one"), "")
		sec.Aim(call.label+" granted, GOMAXPROCS goroutines, of the same", "%.2f", 1.3, ratio("granted/"+call.name, "procs"), "")
		sec.Aim(call.label+" granted, 1,000 goroutines, of the same", "%.2f", 1.3, ratio("granted/"+call.name, "1000"), "")
	}
	sec.Aim("TryAcquire granted while the share changes, of the same", "%.2f", 1.15, ratio("granted/"+ourChanges, "one"), changesNote)
	sec.Aim("the same with GOMAXPROCS goroutines", "%.2f", 1.3, ratio("granted/"+ourChanges, "procs"), changesNote)
	sec.Aim("TryAcquire refused, of a monotonic read", "%.2f", 1.2, ratio("refused/"+ourTry, "one"), "")
	sec.Aim("Acquire refused, maxWait 0, of a monotonic read", "%.2f", 1.2, ratio("refused/"+ourAcquire, "one"), refusedNote)
	sec.Aim("TryAcquire granted, rule stop, of time.Now + add", "%.2f", 1.15, ratio("granted/"+ourStop, "one"),
		fmt.Sprintf("it reads both clocks: %.2f times rule hold", s.Median("granted/"+ourStop+"/goroutines=one", measure.CPUUnit)/s.Median("granted/"+ourTry+"/goroutines=one", measure.CPUUnit)))
	sec.Tell("each further limit of a policy, of monotonic read + add", fmt.Sprintf("%+.3f", (ratio("granted/"+limitsCase(8), "one")-ratio("granted/"+ourTry, "one"))/7),
		"(8 limits - 1) / 7, which is noise: all limits are one number")
	allocs := 0.0
	for _, name := range []string{"granted/" + ourTry, "granted/" + ourAcquire, "granted/" + ourStop, "refused/" + ourTry, "refused/" + ourAcquire} {
		allocs += s.Median(name+"/goroutines=one", measure.AllocsUnit)
	}
	sec.Aim("allocations of these calls", "%.0f", 0, allocs, "")
}
