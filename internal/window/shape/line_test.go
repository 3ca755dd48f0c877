package shape

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// anyLine is a line of any window, with some permits issued before it began.
func anyLine(t *rapid.T) line {
	length := time.Duration(rapid.Int64Range(100, 60_000).Draw(t, "length")) * time.Millisecond
	w := quota.Window{Length: length, Index: rapid.Int64Range(0, 1e7).Draw(t, "index")}
	share := rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 1e9)).Draw(t, "share")
	terms := Terms{
		Guard: rapid.Int64Range(0, int64(length)/3).Draw(t, "guard"), Offset: rapid.Int64Range(-1e15, 1e15).Draw(t, "offset"),
		Pacing: Pacing{Even: true, Phase: rapid.Uint64().Draw(t, "phase")},
	}
	terms.Now = w.Start() - terms.Offset + terms.Guard
	if rapid.Bool().Draw(t, "late") {
		terms.Now += rapid.Int64Range(0, int64(length)-terms.Guard).Draw(t, "how late")
	}
	a := Count{Window: w, Bound: share}
	changed := rapid.Bool().Draw(t, "changed")
	if changed {
		a.Used = rapid.Int64Range(0, share).Draw(t, "used")
	}
	return newLine(&a, terms, changed)
}

// TestLineAtIsTheInverseOfDue: the first instant with n permits due.
func TestLineAtIsTheInverseOfDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := anyLine(t)
		if l.share == l.released {
			return
		}
		n := rapid.Int64Range(l.released+1, l.share).Draw(t, "n")
		at := l.at(n)
		if l.due(at) < n || l.due(at-1) >= n && at > l.from {
			t.Fatalf("%+v: permit %d at %d, where %d are due, and %d just before", l, n, at-l.from, l.due(at), l.due(at-1))
		}
		if l.due(l.end) != l.share {
			t.Fatalf("%+v: %d due at the end", l, l.due(l.end))
		}
		later := rapid.Int64Range(l.from, max(l.end, l.from)).Draw(t, "later")
		if l.due(later) > l.due(later+l.tick) {
			t.Fatalf("%+v: fewer are due later", l)
		}
	})
}
