package measure

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"
)

// Samples are measured values by name and unit, in the order of the rounds.
type Samples map[string]map[string][]float64

// Add appends the value of one round.
func (s Samples) Add(name, unit string, v float64) {
	if s[name] == nil {
		s[name] = map[string][]float64{}
	}
	s[name][unit] = append(s[name][unit], v)
}

// Median returns the median of a name's values.
func (s Samples) Median(name, unit string) float64 { return median(s[name][unit]) }

// Ratio returns the median, over the rounds, of a name's value divided by that of
// its floor.
func (s Samples) Ratio(name, unit string) float64 {
	as, bs := s[name][unit], s[beside(name)][unit]
	var ratios []float64
	for i := range min(len(as), len(bs)) {
		ratios = append(ratios, as[i]/bs[i])
	}
	return median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	return benchmath.AssumeNothing.Summary(sample, 0.95).Center
}

// Write writes every sample in the format of Go's benchmarks, for benchstat.
func (s Samples) Write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, unit := range slices.Sorted(maps.Keys(s[name])) {
			for _, v := range s[name][unit] {
				if _, err := fmt.Fprintf(w, "Benchmark%s 1 %g %s\n", strings.ReplaceAll(name, " ", "_"), v, unit); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Other programs and virtual machines disturb a shared processor for much of the
// time. Some short slices of time are left undisturbed. One goroutine therefore
// measures call and floor in turns, a slice each, and the lowest slices of both are
// compared. With several goroutines a slice is low when the others stand still, and
// the cost of contention would be missed.
const (
	sliceCalls = 2000
	lowest     = 0.02 // the quantile
)

// inSlices measures c and its floor in slices, for about the time each.
func (s Samples) inSlices(name string, c Case, each time.Duration) {
	var call, floor []float64
	for began := time.Now(); time.Since(began) < 2*each || len(call) < 50; {
		floor = append(floor, slice(c.Beside))
		call = append(call, slice(c.Call))
	}
	s.Add(beside(name), SliceUnit, low(floor))
	s.Add(name, SliceUnit, low(call))
}

// slice returns the nanoseconds of a call.
func slice(call func()) float64 {
	began := time.Now()
	for range sliceCalls {
		call()
	}
	return float64(time.Since(began).Nanoseconds()) / sliceCalls
}

func low(values []float64) float64 {
	slices.Sort(values)
	return values[int(lowest*float64(len(values)-1))]
}
