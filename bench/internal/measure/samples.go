package measure

import (
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// Samples are measured values by name and unit, in the order of the rounds.
type Samples struct {
	names  []string
	values map[string]map[string][]float64
}

// NewSamples returns an empty set.
func NewSamples() *Samples { return &Samples{values: map[string]map[string][]float64{}} }

// Add appends the value of one round.
func (s *Samples) Add(name, unit string, v float64) {
	if s.values[name] == nil {
		s.names = append(s.names, name)
		s.values[name] = map[string][]float64{}
	}
	s.values[name][unit] = append(s.values[name][unit], v)
}

// Has reports whether there is any sample of that name.
func (s *Samples) Has(name string) bool { return s.values[name] != nil }

// Median returns the median of a name's values.
func (s *Samples) Median(name, unit string) float64 { return median(s.values[name][unit]) }

// Ratio returns the median, over the rounds, of a name's value by that of what
// was measured beside it.
func (s *Samples) Ratio(name, unit string) float64 {
	as, bs := s.values[name][unit], s.values[beside(name)][unit]
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
func (s *Samples) Write(w io.Writer, config map[string]string) error {
	out := benchfmt.NewWriter(w)
	var cs []benchfmt.Config
	for k, v := range config {
		cs = append(cs, benchfmt.Config{Key: k, Value: []byte(v), File: true})
	}
	slices.SortFunc(cs, func(a, b benchfmt.Config) int { return strings.Compare(a.Key, b.Key) })
	for _, name := range s.names {
		units := s.values[name]
		rounds := 0
		for _, v := range units {
			rounds = max(rounds, len(v))
		}
		for i := range rounds {
			r := &benchfmt.Result{Config: cs, Name: benchfmt.Name(name), Iters: 1}
			for _, unit := range slices.Sorted(maps.Keys(units)) {
				if i < len(units[unit]) {
					r.Values = append(r.Values, benchfmt.Value{Value: units[unit][i], Unit: unit})
				}
			}
			if err := out.Write(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// Merge adds the samples of another set, whose names must be others.
func (s *Samples) Merge(other *Samples) {
	for _, name := range other.names {
		s.names = append(s.names, name)
		s.values[name] = other.values[name]
	}
}
