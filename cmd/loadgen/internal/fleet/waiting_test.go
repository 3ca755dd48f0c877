package fleet

import (
	"testing"
	"time"
)

// A fleet that still makes progress is waited for, on a busy machine too, but not for ever. A
// fleet that makes none is given up earlier. An instance that is lost and comes back is no
// progress.
func TestAFleetThatStillJoinsIsWaitedFor(t *testing.T) {
	t.Parallel()
	began := time.Unix(100, 0)
	for _, c := range []struct {
		name     string
		progress func(second int) int
		want     int // the second at which the wait ends
	}{
		{"no progress", func(int) int { return 0 }, 11},
		{"one more each 9 s", func(s int) int { return s / 9 }, 41},
		{"progress ends after 20 s", func(s int) int { return min(s, 20) }, 31},
		{"one is lost and comes back", func(s int) int { return 5 + s%2 }, 12},
	} {
		w := waiting{since: began, last: began, still: 10 * time.Second, atMost: 40 * time.Second}
		second := 0
		for second < 100 && !w.inVain(began.Add(time.Duration(second)*time.Second), c.progress(second)) {
			second++
		}
		if second != c.want {
			t.Errorf("%s: the wait ended after %d s, not %d s", c.name, second, c.want)
		}
	}
}
