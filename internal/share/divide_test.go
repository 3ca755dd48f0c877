package share_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func TestDivide(t *testing.T) {
	t.Parallel()
	p := quota.Policy{Share: quota.ShareDemand, Limits: []quota.Limit{{Permits: 100, Window: time.Second}, {Permits: 1000, Window: time.Minute}}}
	instances := []quota.Instance{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "gone", Until: at(10)}}
	demands := map[string]int64{"a": 20_000, "b": 200_000, "gone": 500_000, "stranger": 1}
	e := share.Divide(&p, instances, demands, 7, at(10))
	// Of 100 a second 10 are divided equally: 3 each. a asks for 17 more, b for
	// 197, and there are 90.
	want := quota.LevelLimit{Window: time.Second, Base: 3, Most: 73, Claimed: 90}
	if e.Revision != 7 || !e.From.Equal(at(10)) || len(e.Limits) != 2 || e.Limits[0] != want {
		t.Errorf("got %+v, want %+v first", e, want)
	}
}

func TestShifted(t *testing.T) {
	t.Parallel()
	entry := func(most, claimed int64) *quota.LevelEntry {
		return &quota.LevelEntry{Limits: []quota.LevelLimit{{Window: time.Second, Most: most, Claimed: claimed}}}
	}
	d := func(a, b int64) map[string]int64 { return map[string]int64{"a": 1000 * a, "b": 1000 * b} }
	for _, test := range []struct {
		name        string
		old, new    *quota.LevelEntry
		before, now map[string]int64
		want        bool
	}{
		{"nothing", entry(50, 100), entry(50, 100), d(50, 50), d(50, 50), false},
		{"above the level", entry(50, 100), entry(50, 100), d(60, 70), d(600, 700), false},
		{"one percent", entry(50, 100), entry(51, 101), d(51, 50), d(51, 50), false},
		{"three percent", entry(50, 100), entry(53, 103), d(53, 50), d(53, 50), true},
		{"the other way around", entry(90, 100), entry(90, 100), d(90, 10), d(10, 90), true},
		{"one has gone", entry(50, 100), entry(50, 50), d(50, 50), map[string]int64{"a": 50_000}, true},
		{"another length", &quota.LevelEntry{}, entry(50, 100), d(50, 50), d(50, 50), true},
		{"a length less", entry(50, 100), &quota.LevelEntry{}, d(50, 50), d(50, 50), true},
	} {
		if got := share.Shifted(test.old, test.new, test.before, test.now, 2); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	level := func(seconds ...int64) *quota.Level {
		var l quota.Level
		for _, s := range seconds {
			l.Entries = append(l.Entries, quota.LevelEntry{From: at(s)})
		}
		return &l
	}
	for _, test := range []struct {
		name    string
		current *quota.Level
		from    int64
		since   int64
		want    []int64
	}{
		{"the first", nil, 10, 5, []int64{10}},
		{"one in force, one announced", level(2, 8), 10, 5, []int64{2, 8, 10}},
		{"what is over goes", level(2, 4, 8), 10, 5, []int64{4, 8, 10}},
		{"in force at that very instant", level(2, 5, 8), 10, 5, []int64{5, 8, 10}},
		{"announced again", level(2, 10), 10, 5, []int64{2, 10}},
		{"by a clock that is ahead", level(2, 12), 10, 5, []int64{2, 10}},
	} {
		l, ok := share.Extend(test.current, quota.LevelEntry{From: at(test.from)}, at(test.since).UnixNano())
		var got []int64
		for _, e := range l.Entries {
			got = append(got, e.From.Unix())
		}
		if !ok || len(got) != len(test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
			}
		}
	}
	if _, ok := share.Extend(level(1, 2, 3, 4, 5, 6, 7, 8), quota.LevelEntry{From: at(9)}, 0); ok {
		t.Error("an entry more than there is room for")
	}
}
