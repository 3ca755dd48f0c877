package share_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// demandView is a view of instances that share 10,000 a second by these demands, in
// permits a second.
func demandView(demands map[string]int64) (*protocol.View, protocol.LevelEntry) {
	e := share.NewEntry(perThousand(demands), 7, at(10))
	v := &protocol.View{
		Policy: &quota.Policy{Division: quota.Division{Share: quota.ShareDemand}, Limits: []quota.Limit{{Permits: 10_000, Window: time.Second}}},
		Level:  &protocol.Level{Entries: []protocol.LevelEntry{e}, Until: at(1000)},
	}
	for id := range demands {
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
	}
	return v, e
}

func perThousand(perSecond map[string]int64) map[string]int64 {
	all := map[string]int64{}
	for id, d := range perSecond {
		all[id] = 1000 * d
	}
	return all
}

func TestLevelOf(t *testing.T) {
	t.Parallel()
	v, _ := demandView(map[string]int64{"a": 2048, "b": 20_000, "c": 0, "gone": 50_000})
	v.Instances = slices.DeleteFunc(v.Instances, func(i protocol.Instance) bool { return i.ID == "gone" })
	l, asks, ok := share.LevelOf(v, quota.WindowAt(time.Second, at(10).UnixNano()))
	// Of 10,000 a second 1,000 are divided equally: 333 each. a asks for 1,715
	// more, b for 19,667 and more, and there are 9,000.
	if want := (share.Level{Base: 333, Most: 7285, Claimed: 9000}); !ok || l != want || len(asks) != 3 {
		t.Errorf("got %+v, %v, %v, want %+v", l, asks, ok, want)
	}
	if _, _, ok := share.LevelOf(v, quota.WindowAt(time.Second, at(9).UnixNano())); ok {
		t.Error("a level is in force before its time")
	}
	if _, _, ok := share.LevelOf(v, quota.WindowAt(time.Second, at(1000).UnixNano())); ok {
		t.Error("a level is in force after its time")
	}
}

func TestShifted(t *testing.T) {
	t.Parallel()
	d := func(a, b int64) map[string]int64 { return map[string]int64{"a": a, "b": b} }
	for _, test := range []struct {
		name        string
		before, now map[string]int64
		want        bool
	}{
		{"nothing", d(5000, 5000), d(5000, 5000), false},
		{"above the level", d(6000, 7000), d(60000, 70000), false},
		{"one percent", d(4000, 5000), d(4100, 5000), false},
		{"three percent", d(4000, 5000), d(4300, 5000), true},
		{"the other way around", d(9000, 1000), d(1000, 9000), true},
		{"one is silent", d(5000, 5000), d(5000, 0), true},
	} {
		v, _ := demandView(test.before)
		e := share.NewEntry(perThousand(test.now), 9, at(12))
		if got := share.Shifted(v, e, 2); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	v, e := demandView(d(5000, 5000))
	v.Instances = append(v.Instances, protocol.Instance{ID: "idle"})
	if share.Shifted(v, e, 2) {
		t.Error("a newcomer that asks for nothing shifts claims")
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	level := func(seconds ...int64) *protocol.Level {
		l := protocol.Level{Until: at(100)}
		for _, s := range seconds {
			l.Entries = append(l.Entries, protocol.LevelEntry{From: at(s)})
		}
		return &l
	}
	expiring := func(until int64, l *protocol.Level) *protocol.Level { l.Until = at(until); return l }
	for _, test := range []struct {
		name    string
		current *protocol.Level
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
		{"one that expires before", expiring(7, level(2)), 10, 5, []int64{2, 7, 10}},
		{"one that expires before it begins", expiring(7, level(2, 8)), 10, 5, []int64{2, 8, 10}},
	} {
		l, ok := share.Extend(test.current, protocol.LevelEntry{From: at(test.from)}, at(test.since).UnixNano())
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
	if _, ok := share.Extend(level(1, 2, 3, 4, 5, 6, 7, 8), protocol.LevelEntry{From: at(9)}, 0); ok {
		t.Error("an entry more than there is room for")
	}
}

// TestExtendKeepsItSmall: as many demands as an entry may list fill a level sooner.
func TestExtendKeepsItSmall(t *testing.T) {
	t.Parallel()
	demands := map[string]int64{}
	for i := range int64(2 * share.MostListed) {
		demands[string(rune('a'+i%26))+strconv.FormatInt(i, 10)] = i
	}
	l := protocol.Level{Until: at(100)}
	n, ok := 0, true
	for ; ok && n < 20; n++ {
		l, ok = share.Extend(&l, share.NewEntry(demands, 7, at(int64(n))), 0)
	}
	if n != 5 {
		t.Errorf("room for %d entries of %d demands, want 4", n-1, share.MostListed)
	}
	l.Entries = l.Entries[:4]
	l.Until = at(1000)
	b, err := json.Marshal(l)
	if err := errors.Join(err, l.Validate(), json.Unmarshal(b, new(protocol.Level))); err != nil {
		t.Errorf("the largest level, of %d bytes: %v", len(b), err)
	}
}

// TestTheLargestDemandsAreListed, and rounded up by 0.1% at most.
func TestTheLargestDemandsAreListed(t *testing.T) {
	t.Parallel()
	demands := map[string]int64{}
	for i := range int64(share.MostListed + 100) {
		demands[strconv.FormatInt(i, 10)] = 1000 + i
	}
	list := share.NewEntry(demands, 7, at(1)).Demands
	for id, d := range demands {
		got := share.Listed(list, id)
		if d >= 1100+10 && (got < d || got > d+d/1000+1) || d < 1100-10 && got != 0 {
			t.Errorf("%d is listed as %d", d, got)
		}
	}
	for code := range 1 << 16 {
		if d := share.Float(uint16(code)); d < 0 || d > protocol.MaxDemand || d < protocol.MaxDemand && share.Float(share.Code(d)) != d {
			t.Fatalf("code %d is %d, which is code %d", code, d, share.Code(d))
		}
	}
}
