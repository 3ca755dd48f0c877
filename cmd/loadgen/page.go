package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/load/picture"
)

// openPage makes the file for the page, now, so that a bad name costs no run. No
// name: nil.
func openPage(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, usagef("--html: %v; give a file that can be written", err)
	}
	return f, nil
}

// writePage writes the report as a page.
func writePage(w io.Writer, c *config, r *load.Report) error {
	var verdict strings.Builder
	writeVerdict(&verdict, r.Verdict, r.Windows, &r.Summary)
	page := picture.Page{
		Title:   fmt.Sprintf("%d instances share %s%s", c.instances, c.limit, c.shapeText()),
		Verdict: strings.TrimSpace(verdict.String()),
		Report:  r,
		Facts:   facts(&r.Summary),
		Asked:   asked(r.Config),
	}
	if err := page.Write(w); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// facts are the summary, as writeSummary tells it.
func facts(s *load.Summary) []picture.Fact {
	list := []picture.Fact{
		{Name: "whole windows", Value: thousands(int64(s.Windows))},
		{Name: "over the limit", Value: strconv.Itoa(s.OverLimitWindows)},
		{Name: "permits issued", Value: thousands(s.IssuedTotal)},
		{Name: "utilisation, settled", Value: settledText(s)},
		{Name: "utilisation, all windows", Value: percent(s.UtilisationAll)},
		{Name: "settled in", Value: fmt.Sprintf("%.1f s", s.SettleSeconds)},
		{Name: "most in a window's length", Value: fmt.Sprintf("%.2f of the limit", s.MaxSpanRatio)},
		{Name: "peak to mean in 10 ms, 50 ms", Value: fmt.Sprintf("%.2f, %.2f", s.PeakToMean10ms, s.PeakToMean50ms)},
		{Name: "a permit at once: p50, p99", Value: pair(s.AcquireNs)},
		{Name: "calls waited: p50, p99", Value: pair(s.DelayNs)},
		{Name: "processor time", Value: fmt.Sprintf("%.1f s", s.CPUSeconds)},
		{Name: "memory", Value: fmt.Sprintf("%d MiB", s.MaxRSSBytes>>20)},
	}
	if p := s.Spans; p != nil {
		list = append(list, picture.Fact{Name: "spans judged, over", Value: thousands(p.Judged) + ", " + thousands(p.Over)})
		if p.Worst != nil {
			list = append(list, picture.Fact{Name: "fullest span", Value: spanText(p)})
		}
	}
	if d := s.Departures; d != nil {
		list = append(list, picture.Fact{Name: "left: announced, killed, could not announce",
			Value: fmt.Sprintf("%d, %d, %d", d.Announced, d.Killed, d.Unannounced)})
	}
	return list
}

func pair(q load.Quantiles) string {
	return brief(q.P50) + ", " + brief(q.P99)
}

// brief writes nanoseconds in three digits or so.
func brief(ns int64) string {
	d := time.Duration(ns)
	for unit := time.Second; unit >= time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// asked is the configuration, as the JSON report has it.
func asked(config any) []picture.Fact {
	var list []picture.Fact
	v := reflect.ValueOf(config)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		value := fmt.Sprint(v.Field(i).Interface())
		if texts, ok := reflect.TypeAssert[[]string](v.Field(i)); ok {
			value = strings.Join(texts, ", ")
		}
		if value != "" {
			list = append(list, picture.Fact{Name: strings.ReplaceAll(name, "_", " "), Value: value})
		}
	}
	return list
}
