package quota

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func fullLevel() Level {
	return Level{
		Entries: []LevelEntry{
			{From: newYear, Revision: 7, Limits: []LevelLimit{{2 * time.Second, 1, 20, 300}, {time.Minute, 10, 200, 3000}}},
			{From: newYear.Add(3 * time.Second), Revision: 9, Limits: []LevelLimit{{2 * time.Second, 2, 30, 400}}},
		},
		Until: newYear.Add(time.Minute), Author: "worker-7.1a2b.1", Time: newYear.Add(-time.Second),
	}
}

func TestLevelJSON(t *testing.T) {
	t.Parallel()
	l := fullLevel()
	l.Entries[0].Demand = 77 // the reader's own: never written
	b, err := json.Marshal(l)
	want := `{"schema":1,"entries":[{"from":"2027-01-01T00:00:00Z","revision":7,"limits":[{"window":"2s","base":1,"most":20,"claimed":300},{"window":"1m0s","base":10,"most":200,"claimed":3000}]},` +
		`{"from":"2027-01-01T00:00:03Z","revision":9,"limits":[{"window":"2s","base":2,"most":30,"claimed":400}]}],"until":"2027-01-01T00:01:00Z","author":"worker-7.1a2b.1","time":"2026-12-31T23:59:59Z"}`
	if err != nil || string(b) != want {
		t.Errorf(" got %s, %v\nwant %s", b, err, want)
	}
	var got Level
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, fullLevel()) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{`{}`, `{"schema":2}`, `{"schema":1,"entries":7}`, `null`, strings.Repeat(" ", MaxLevelBytes+1)} {
		if err := json.Unmarshal([]byte(bad), new(Level)); err == nil && bad != `null` {
			t.Errorf("%.40s was read", bad)
		}
	}
}

func TestLevelAt(t *testing.T) {
	t.Parallel()
	l := fullLevel()
	for _, test := range []struct {
		after    time.Duration
		revision int64
	}{{-1, 0}, {0, 7}, {3*time.Second - 1, 7}, {3 * time.Second, 9}, {time.Minute - 1, 9}, {time.Minute, 0}} {
		e := l.At(newYear.Add(test.after).UnixNano())
		if got := (e != nil); got != (test.revision != 0) || got && e.Revision != test.revision {
			t.Errorf("%v after new year: %+v, want revision %d", test.after, e, test.revision)
		}
	}
	if (*Level)(nil).At(0) != nil {
		t.Error("no level has an entry")
	}
}

func TestLevelValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(l *Level)
		fields string
	}{
		{"every field", func(*Level) {}, ""},
		{"nothing", func(l *Level) { *l = Level{} }, "entries until"},
		{"too many entries", func(l *Level) {
			for len(l.Entries) <= MaxLevelEntries {
				e := l.Entries[len(l.Entries)-1]
				e.From = e.From.Add(1)
				l.Entries = append(l.Entries, e)
			}
		}, "entries"},
		{"unsorted", func(l *Level) { l.Entries[1].From = newYear }, "entries[1].from"},
		{"no revision", func(l *Level) { l.Entries[1].Revision = 0 }, "entries[1].revision"},
		{"no limits", func(l *Level) { l.Entries[1].Limits = nil }, "entries[1].limits"},
		{"twice a window", func(l *Level) { l.Entries[0].Limits[1].Window = 2 * time.Second }, "entries[0].limits"},
		{"negative", func(l *Level) { l.Entries[0].Limits[1].Base = -1 }, "entries[0].limits[1]"},
		{"too much", func(l *Level) { l.Entries[0].Limits[0].Claimed = MaxPermits + 1 }, "entries[0].limits[0]"},
	} {
		l := fullLevel().Clone()
		test.change(&l)
		checkFields(t, test.name, l.Validate(), test.fields)
	}
}

func TestDemandForIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.Int64Range(-5, MaxDemand).Draw(t, "demand")
		window := time.Duration(rapid.Int64Range(-5, int64(MaxWindow)).Draw(t, "window"))
		want := int64(0)
		if demand > 0 && window > 0 {
			n := new(big.Int).Mul(big.NewInt(demand), big.NewInt(int64(window)))
			thousand := big.NewInt(int64(1000 * time.Second))
			n.Add(n, new(big.Int).Sub(thousand, big.NewInt(1)))
			want = n.Div(n, thousand).Int64()
		}
		if got := DemandFor(demand, window); got != want {
			t.Fatalf("DemandFor(%d, %v) = %d, want %d", demand, window, got, want)
		}
	})
}

func TestClaim(t *testing.T) {
	t.Parallel()
	l := LevelLimit{Window: time.Second, Base: 10, Most: 50}
	for _, test := range []struct{ perSecond, want int64 }{{-1, 0}, {0, 0}, {10, 0}, {11, 1}, {60, 50}, {61, 50}, {1e12, 50}} {
		if got := l.Claim(1000 * test.perSecond); got != test.want {
			t.Errorf("demand %d/s: claim %d, want %d", test.perSecond, got, test.want)
		}
	}
}

func FuzzLevelJSON(f *testing.F) {
	full, err := json.Marshal(fullLevel())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"schema":1,"entries":[{"from":"9999-12-31T23:59:59Z","revision":-1,"limits":[{"window":"s","claimed":-9223372036854775808}]}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		settled(t, text, func(l Level) error {
			for _, wall := range []int64{-1 << 63, 0, newYear.UnixNano(), 1<<63 - 1} {
				if e := l.At(wall); e != nil {
					for i := range e.Limits {
						e.Limits[i].Claim(wall)
					}
				}
			}
			return l.Validate()
		})
	})
}
