package load

import "testing"

// A run is held only if each window of each key is, and no more is due than the calls for each
// key can get.
func TestKeysAreJudged(t *testing.T) {
	counts := func(offered, issued, doubtful int64) (all []Count) {
		for k := int64(10); k < 15; k++ {
			all = append(all, Count{Index: k, Offered: offered, Issued: issued, Doubtful: doubtful})
		}
		return all
	}
	for _, c := range []struct {
		name string
		keys [][]Count
		due  int64
		want Verdict
		over int
	}{
		{"all as it should be", [][]Count{counts(90, 60, 0), counts(40, 40, 0), counts(9, 0, 0)}, 400, Held, 0},
		{"one key has all calls", [][]Count{counts(150, 60, 0), nil}, 240, Underused, 0},
		{"few calls for each", [][]Count{counts(60, 60, 0), counts(20, 20, 0)}, 320, Held, 0},
		{"over for one", [][]Count{counts(90, 39, 0), counts(60, 61, 0)}, 400, NotHeld, 5},
		{"perhaps over", [][]Count{counts(90, 39, 0), counts(60, 61, 1)}, 400, Held, 0},
	} {
		r := steadyRun()
		r.Keys, r.KeyLimit, r.LeastUse = c.keys, perSecond(60)[0], 0.95
		if c.name == "one key has all calls" {
			for i := range r.Counts {
				r.Counts[i].Issued = 50
			}
		}
		_, s, verdict := judge(r)
		if verdict != c.want || s.Keys.OverLimitWindows != c.over || s.Used.Due != c.due {
			t.Errorf("%s: %s, %d windows over, %d due; want %s, %d, %d", c.name, verdict, s.Keys.OverLimitWindows, s.Used.Due, c.want, c.over, c.due)
		}
	}
}
