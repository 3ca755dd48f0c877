package tally

import (
	"testing"
	"time"
)

func TestRefusalRate(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		what        string
		seen, at    []int64 // when the permits are looked at, in seconds, and how many were issued
		calls, want int     // refusals at the end, and which of them is the first that counts; 0: none
	}{
		{"the first two of all", nil, nil, 2, 0},
		{"three of few", nil, nil, 3, 3},
		{"a tenth", []int64{1, 2}, []int64{0, 100}, 10, 0},
		{"more than a tenth", []int64{1, 2}, []int64{0, 100}, 12, 11},
		{"of the last seconds only", []int64{1, 2, 3, 4}, []int64{1000, 2000, 3000, 3020}, 3, 3},
	} {
		var r Refusals
		mono, issued := int64(0), int64(0)
		for i, at := range c.seen {
			mono, issued = at*s, c.at[i]
			r.See(mono, issued)
		}
		got := 0
		for n := 1; n <= c.calls; n++ {
			if r.Add(mono, issued) && got == 0 {
				got = n
			}
		}
		if got != c.want {
			t.Errorf("%s: refusal %d counts, want %d", c.what, got, c.want)
		}
	}
}
