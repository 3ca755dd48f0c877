package tally

import "time"

const (
	// refusedAtLeast and refusedPart are how many calls, and which part of them, a
	// provider refuses that refuses more than stray ones: one in refusedPart.
	refusedAtLeast = 3
	refusedPart    = 10
	rateSpan       = int64(time.Second)
)

// Refusals counts what the provider refused beside what was issued, for the last one
// to two seconds. Instants are monotonic. Its caller keeps calls apart.
type Refusals struct {
	refused   int64
	last, now mark // the beginning of the span before, and of the running one
}

type mark struct{ mono, issued, refused int64 }

// See notes how many permits were issued up to now. It is called once a second.
func (r *Refusals) See(mono, issued int64) {
	if mono-r.now.mono >= rateSpan {
		r.last, r.now = r.now, mark{mono, issued, r.refused}
	}
}

// Add counts a refusal, and reports whether they are more than a tenth.
func (r *Refusals) Add(mono, issued int64) bool {
	r.See(mono, issued)
	r.refused++
	n := r.refused - r.last.refused
	return n >= refusedAtLeast && refusedPart*n > issued-r.last.issued
}
