package measure

import (
	"slices"
	"time"
)

// A processor that others share is disturbed for a good part of the time: by other
// programs, by other machines on the same host, by the other half of its core. What
// a call costs by itself shows in short slices of time, of which some are left
// alone. So one goroutine also measures call and floor in turns, a slice each, and
// the lowest slices of both are compared.
//
// Not with several goroutines: there a slice is low when the other goroutines stand
// still, and what they cost each other would go unseen.
const (
	sliceCalls = 2000
	lowest     = 0.02 // the quantile
)

// inSlices measures c and its floor in slices, for about the time each.
func (s *Samples) inSlices(name string, c Case, each time.Duration) {
	var call, floor []float64
	for began := time.Now(); time.Since(began) < 2*each || len(call) < 50; {
		floor = append(floor, slice(c.Beside))
		call = append(call, slice(c.Call))
	}
	s.Add(beside(name), SliceUnit, low(floor))
	s.Add(name, SliceUnit, low(call))
}

// slice is nanoseconds for a call.
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
