// Package hotpath measures a permit that is granted, or refused, at once:
// Quotient's calls, the least that they could cost, and the peers'.
package hotpath

import (
	"context"
	"fmt"
	"strings"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/peers"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// Run measures and reports.
func Run(ctx context.Context, o measure.Options) (*report.Section, error) {
	own, stop, err := granted()
	if err != nil {
		return nil, err
	}
	others, err := peers.Granted()
	if err != nil {
		return nil, err
	}
	cases := floors()
	for _, c := range append(own, others...) {
		cases = append(cases, measure.Case{Name: "granted/" + c.Name, Call: c.Call, Beside: besideGranted(c.Name)})
	}
	ownRefused, err := refused()
	if err != nil {
		return nil, err
	}
	othersRefused, err := peers.Refused()
	if err != nil {
		return nil, err
	}
	for _, c := range append(ownRefused, othersRefused...) {
		cases = append(cases, measure.Case{Name: "refused/" + c.Name, Call: c.Call, Beside: readMono})
	}
	defer stop()
	if err := o.Run(ctx, cases); err != nil {
		return nil, err
	}
	return describe(o.Samples, cases), nil
}

func describe(s measure.Samples, cases []measure.Case) *report.Section {
	sec := &report.Section{Title: "Granted and refused at once"}
	sec.Text("Nanoseconds of processor time for a call, median of the rounds; then how many times its floor, measured right before it " +
		"in every round: *monotonic-read+add* for what is granted (*time.Now+add* for rule stop), *monotonic-read* for what is refused. " +
		"On n processors at work, the time that passes for a call is about an n-th of that. *Undisturbed* is the ratio in the " +
		"quickest 2%% of slices of 2,000 calls, call and floor in turns.")
	var rows [][]string
	for _, c := range cases {
		rows = append(rows, row(s, c.Name))
	}
	sec.Table([]string{"call", "one goroutine", "one a processor", "1,000", "of floor", "undisturbed", "of floor, one a processor", "of floor, 1,000", "allocs"}, rows)
	sec.Draw(chart(s, cases, "granted", "A permit, granted"))
	sec.Draw(chart(s, cases, "refused", "A permit, refused"))
	goals(s, sec)
	return sec
}

func row(s measure.Samples, name string) []string {
	one, procs, many := name+"/goroutines=one", name+"/goroutines=procs", name+"/goroutines=1000"
	ns := func(n string) string { return fmt.Sprintf("%.1f", s.Median(n, measure.CPUUnit)) }
	return []string{
		strings.ReplaceAll(strings.TrimPrefix(name, "granted/"), "/", " "),
		ns(one), ns(procs), ns(many),
		ratio(s, one, measure.CPUUnit), ratio(s, one, measure.SliceUnit), ratio(s, procs, measure.CPUUnit), ratio(s, many, measure.CPUUnit),
		fmt.Sprintf("%.0f", s.Median(one, measure.AllocsUnit)),
	}
}

func ratio(s measure.Samples, name, unit string) string {
	if r := s.Ratio(name, unit); r > 0 {
		return fmt.Sprintf("%.2f", r)
	}
	return ""
}

func chart(s measure.Samples, cases []measure.Case, kind, title string) report.Chart {
	c := report.Chart{File: kind, Title: title + ": one goroutine", Unit: "ns of processor time"}
	for _, k := range cases {
		name, ok := strings.CutPrefix(k.Name, kind+"/peer=")
		floor, isFloor := strings.CutPrefix(k.Name, "floor=")
		switch {
		case isFloor && floor != "empty-call":
			name = "(floor) " + floor
		case !ok || strings.Contains(name, "limits=") || strings.Contains(name, "changing"):
			continue
		}
		c.Bars = append(c.Bars, report.Bar{
			Label: strings.NewReplacer("/call=", " ", "/outage=", " ").Replace(name),
			Value: s.Median(k.Name+"/goroutines=one", measure.CPUUnit), Ours: strings.HasPrefix(name, "quotient"),
		})
	}
	return c
}

func goals(s measure.Samples, sec *report.Section) {
	ratio := func(name, mode string) float64 { return s.Ratio(name+"/goroutines="+mode, measure.CPUUnit) }
	// What one goroutine's call costs is told by undisturbed slices: see measure.SliceUnit.
	alone := func(what, name string, want float64, note string) {
		got, all := s.Ratio(name+"/goroutines=one", measure.SliceUnit), ratio(name, "one")
		sec.Aim(what, "%.2f", want, got, strings.TrimSuffix(fmt.Sprintf("undisturbed; median of everything %.2f; %s", all, note), "; "))
	}
	for _, call := range []struct{ label, name string }{{"TryAcquire", ourTry}, {"Acquire", ourAcquire}} {
		alone(call.label+" granted, of monotonic read + add", "granted/"+call.name, 1.15, "")
		sec.Aim(call.label+" granted, GOMAXPROCS goroutines, of the same", "%.2f", 1.3, ratio("granted/"+call.name, "procs"), "")
		sec.Aim(call.label+" granted, 1,000 goroutines, of the same", "%.2f", 1.3, ratio("granted/"+call.name, "1000"), "")
	}
	alone("TryAcquire granted while the share changes, of the same", "granted/"+ourChanges, 1.15, changesNote)
	sec.Aim("the same with GOMAXPROCS goroutines", "%.2f", 1.3, ratio("granted/"+ourChanges, "procs"), changesNote)
	alone("TryAcquire refused, of a monotonic read", "refused/"+ourTry, 1.2, "")
	alone("Acquire refused, maxWait 0, of a monotonic read", "refused/"+ourAcquire, 1.2, refusedNote)
	alone("TryAcquire granted, rule stop, of time.Now + add", "granted/"+ourStop, 1.15,
		fmt.Sprintf("it reads both clocks: %.2f times rule hold", s.Median("granted/"+ourStop+"/goroutines=one", measure.SliceUnit)/s.Median("granted/"+ourTry+"/goroutines=one", measure.SliceUnit)))
	eight, one := s.Ratio("granted/"+ourEight+"/goroutines=one", measure.SliceUnit), s.Ratio("granted/"+ourTry+"/goroutines=one", measure.SliceUnit)
	sec.Tell("each further limit of a policy, of monotonic read + add", fmt.Sprintf("%+.3f", (eight-one)/7),
		"undisturbed; (8 limits - 1) / 7, which is noise: all limits are one number")
	allocs := 0.0
	for _, name := range []string{"granted/" + ourTry, "granted/" + ourAcquire, "granted/" + ourStop, "refused/" + ourTry, "refused/" + ourAcquire} {
		allocs += s.Median(name+"/goroutines=one", measure.AllocsUnit)
	}
	sec.Aim("allocations of these calls", "%.0f", 0, allocs, "")
}
