package load

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A request is late in a window of a length if its permit was asked for before
// its own window of that length ended.
func TestLateRequests(t *testing.T) {
	at := func(tenths int64) int64 { return tenths * second / 10 }
	for _, c := range []struct {
		what             string
		asked, at        int64 // tenths; the permit is of the window [110, 120)
		late, lateInFive bool
	}{
		{"in time", 112, 119, false, false},
		{"crosses the edge on its way", 119, 120, true, false},
		{"waited for its window", 105, 119, false, false},
		{"waited, and crosses the edge", 105, 121, true, false},
		{"a permit of a window that is over", 120, 121, false, false},
		{"early", 105, 109, false, false},
		{"late even for the longer window", 119, 150, true, true},
		{"a permit that is over, and longer on its way", 121, 150, false, true},
		{"everything is over", 150, 151, false, false},
	} {
		r := Request{Start: 11 * second, Asked: at(c.asked)}
		if got := r.late(time.Second, at(c.at)); got != c.late {
			t.Errorf("%s: late is %v", c.what, got)
		}
		if got := r.late(5*time.Second, at(c.at)); got != c.lateInFive {
			t.Errorf("%s: late for five seconds is %v", c.what, got)
		}
	}
}

// Callers whose clocks are within the guard of the provider's are never over,
// whatever happens on the way; the provider counts every request once.
func TestWhatIsPunctualIsOfItsOwnWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guard := rapid.Int64Range(0, second/4).Draw(t, "guard")
		p := Provider{oneTally(time.Second, 20*second)}
		of := map[int64]int64{} // permits by window
		n := rapid.IntRange(1, 30).Draw(t, "requests")
		for range n {
			apart := rapid.Int64Range(-guard, guard).Draw(t, "apart")
			k := rapid.Int64Range(10, 13).Draw(t, "window")
			admitted := k*second + rapid.Int64Range(guard, second-guard-1).Draw(t, "phase") - apart // by the provider's clock
			asked := admitted - rapid.Int64Range(0, second/2).Draw(t, "waited")
			p.Arrive(admitted+rapid.Int64Range(0, 2*second).Draw(t, "way"), Request{Start: k * second, Asked: asked})
			of[k]++
		}
		arrived := int64(0)
		for _, c := range p[0].Counts() {
			if punctual := c.Issued - c.Offered; punctual > of[c.Index] {
				t.Errorf("window %d: %d permits, %d requests that are not late", c.Index, of[c.Index], punctual)
			}
			arrived += c.Issued
		}
		if arrived != int64(n) {
			t.Errorf("%d requests, %d counted", n, arrived)
		}
	})
}

// A clock that is beyond the guard is found out: permits that were asked for
// after their window, or that arrive before it, are not late.
func TestAClockBeyondTheGuardIsSeen(t *testing.T) {
	for _, apart := range []int64{-second / 2, second / 2} { // of the caller's clock
		p := Provider{oneTally(time.Second, 20*second)}
		for i := range int64(100) { // one window of the caller's
			admitted := 11*second + i*second/100 - apart
			p.Arrive(admitted, Request{Start: 11 * second, Asked: admitted})
		}
		home := 11*second - max(0, apart)*2 // the other window that it touches
		want := []Count{{Index: home / second, Issued: 50}, {Index: home/second + 1, Issued: 50}}
		if d := cmp.Diff(want, p[0].Counts()); d != "" {
			t.Error(d)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("1 2")
	f.Add("-1 2")
	f.Add("1")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequest(text)
		if err != nil {
			return
		}
		if again, err := ParseRequest(r.String()); err != nil || again != r || r.Start < 0 || r.Asked < 0 {
			t.Errorf("%q became %+v, %+v, %v", text, r, again, err)
		}
	})
}
