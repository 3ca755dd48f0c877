package protocol

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

var newYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func fullLevel() Level {
	return Level{
		Entries: []LevelEntry{
			{From: newYear, Revision: 7, Demands: []byte("123456")},
			{From: newYear.Add(3 * time.Second), Revision: 9, Demands: []byte("123456abcdef")},
		},
		Until: newYear.Add(time.Minute), Author: "worker-7.1a2b.1", Time: newYear.Add(-time.Second),
	}
}

func TestLevelJSON(t *testing.T) {
	t.Parallel()
	l := fullLevel()
	b, err := json.Marshal(l)
	want := `{"schema":1,"entries":[{"from":"2027-01-01T00:00:00Z","revision":7,"demands":"MTIzNDU2"},` +
		`{"from":"2027-01-01T00:00:03Z","revision":9,"demands":"MTIzNDU2YWJjZGVm"}],"until":"2027-01-01T00:01:00Z","author":"worker-7.1a2b.1","time":"2026-12-31T23:59:59Z"}`
	if err != nil || string(b) != want {
		t.Errorf(" got %s, %v\nwant %s", b, err, want)
	}
	if got, err := ReadLevel(b); err != nil || !reflect.DeepEqual(*got, fullLevel()) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{`{}`, `{"schema":2}`, `{"schema":1,"entries":7}`, `null`, strings.Repeat(" ", MaxLevelBytes+1)} {
		if _, err := ReadLevel([]byte(bad)); err == nil {
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
		fields string // that the errors name
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
		{"too many demands", func(l *Level) { l.Entries[1].Demands = make([]byte, MaxLevelDemands) }, "entries"},
	} {
		l := fullLevel()
		test.change(&l)
		var fields []string
		if err := l.Validate(); err != nil {
			for line := range strings.Lines(err.Error()) {
				field, _, _ := strings.Cut(line, ":")
				fields = append(fields, field)
			}
		}
		if got := strings.Join(fields, " "); got != test.fields {
			t.Errorf("%s: fields %q, want %q: %v", test.name, got, test.fields, l.Validate())
		}
	}
}

func TestDemandForIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.Int64Range(-5, MaxDemand).Draw(t, "demand")
		window := time.Duration(rapid.Int64Range(-5, int64(quota.MaxWindow)).Draw(t, "window"))
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

func FuzzLevelJSON(f *testing.F) {
	full, err := json.Marshal(fullLevel())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"schema":1,"entries":[{"from":"9999-12-31T23:59:59Z","revision":-1,"demands":"AAA"}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ReadLevel(text)
		if err != nil {
			return
		}
		for _, wall := range []int64{-1 << 63, 0, newYear.UnixNano(), 1<<63 - 1} {
			l.At(wall)
		}
		first, err := json.Marshal(l)
		if err != nil {
			return // a year that RFC 3339 does not have
		}
		again, err := ReadLevel(first)
		if err != nil {
			t.Fatalf("%q was written as %s, which cannot be read: %v", text, first, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%q: first %s, then %s, %v", text, first, second, err)
		}
	})
}
