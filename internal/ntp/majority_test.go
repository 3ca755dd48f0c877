package ntp

import (
	"testing"

	"pgregory.net/rapid"
)

func TestMajority(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		all    []interval
		common interval
		votes  int
	}{
		{"nobody", nil, interval{}, 0},
		{"one", []interval{{3, 9}}, interval{3, 9}, 1},
		{"two that agree", []interval{{0, 10}, {4, 20}}, interval{4, 10}, 2},
		{"two that touch", []interval{{0, 10}, {10, 20}}, interval{10, 10}, 2},
		{"two that disagree", []interval{{0, 10}, {11, 20}}, interval{0, 20}, 1},
		{"a liar", []interval{{0, 10}, {300, 301}, {4, 20}}, interval{4, 10}, 2},
		{"half of four are liars", []interval{{0, 10}, {300, 310}, {4, 20}, {305, 320}}, interval{4, 310}, 2},
		{"a coarse one in agreement with two fine ones that disagree", []interval{{-150, 150}, {-1, 1}, {120, 122}}, interval{-1, 122}, 2},
		{"inside each other", []interval{{0, 100}, {10, 90}, {20, 80}}, interval{20, 80}, 3},
		{"the whole line", []interval{{-1 << 63, 1<<63 - 1}, {5, 6}}, interval{5, 6}, 2},
		{"turned round", []interval{{9, 3}, {1, 2}, {1, 2}}, interval{1, 2}, 2},
	} {
		common, votes := majority(test.all)
		if votes != test.votes || common != test.common {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, common, votes, test.common, test.votes)
		}
	}
}

// The naive model counts at every offset.
func TestMajorityProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 40
		at := rapid.Int64Range(0, most)
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) interval {
			a, b := at.Draw(t, "a"), at.Draw(t, "b")
			return interval{min(a, b), max(a, b)}
		}), 0, 7).Draw(t, "intervals")
		var count [most + 1]int
		highest := 0
		for x := range count {
			for _, i := range all {
				if i.lo <= int64(x) && int64(x) <= i.hi {
					count[x]++
				}
			}
			highest = max(highest, count[x])
		}
		common, votes := majority(all)
		if votes != highest {
			t.Fatalf("%v: %v, want %v", all, votes, highest)
		}
		if votes == 0 {
			return
		}
		for x, n := range count {
			inside := common.lo <= int64(x) && int64(x) <= common.hi
			if n == highest && !inside {
				t.Fatalf("%v: %d of them hold %d, which is not in %v", all, n, x, common)
			}
		}
		if count[common.lo] != highest || count[common.hi] != highest {
			t.Fatalf("%v: the ends of %v are held by %d and %d, not by %d", all, common, count[common.lo], count[common.hi], highest)
		}
	})
}
