package chart

import (
	"math"
	"strconv"
	"strings"
)

// place returns where a value lies on the axis, 0 to 1.
func (a *Axis) place(v float64) float64 {
	low, high := a.Min, a.Max
	if a.Log {
		v, low, high = math.Log10(max(v, low)), math.Log10(low), math.Log10(high)
	}
	return min(max((v-low)/(high-low), 0), 1)
}

// ticks returns what is marked, at most about count values.
func (a *Axis) ticks(count int) []Tick {
	if a.Ticks != nil {
		return a.Ticks
	}
	text := a.Text
	if text == nil {
		text = Short
	}
	var ticks []Tick
	if a.Log {
		for e := math.Ceil(math.Log10(a.Min) - 1e-9); e <= math.Log10(a.Max)+1e-9; e++ {
			v := math.Pow(10, e)
			ticks = append(ticks, Tick{v, text(v)})
		}
		return ticks
	}
	step := round((a.Max - a.Min) / float64(max(count, 1)))
	for i := math.Ceil(a.Min/step - 1e-9); i*step <= a.Max+step*1e-9; i++ {
		v := i*step + 0 // never -0
		ticks = append(ticks, Tick{v, text(v)})
	}
	return ticks
}

// round returns the smallest of 1, 2 and 5 times a power of ten that is at least
// v.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// Above returns a round number that is at least v, for the end of an axis that
// begins at 0; 1 if v is not positive.
func Above(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 1) {
		return 1
	}
	step := round(v / 8)
	return math.Ceil(v/step-1e-9) * step
}

// Short writes a number in a few characters: 950, 300k, 1.5M.
func Short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return digits(v/unit.size) + unit.name
		}
	}
	return digits(v)
}

// digits writes three significant digits, without zeros at the end.
func digits(v float64) string {
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.ContainsRune(s, 'e') {
		s = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return s
}
