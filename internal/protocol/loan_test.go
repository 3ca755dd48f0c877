package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

var (
	second = []quota.Window{{Length: time.Second, Index: 7}}
	next   = []quota.Window{{Length: time.Second, Index: 8}}
	minute = []quota.Window{{Length: time.Minute, Index: 0}}
)

func encoded(t *testing.T, message ...Note) string {
	t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadNotes(t *testing.T) {
	t.Parallel()
	of := func(windows []quota.Window, permits map[string]int64) Note {
		return Note{Windows: windows, Permits: permits}
	}
	one := func(name string, permits int64) Note { return of(second, map[string]int64{name: permits}) }
	ask := func(name string, need Need) Note { return Note{Windows: second, Needs: map[string]Need{name: need}} }
	good := []Note{
		{Windows: []quota.Window{second[0], minute[0]}, Permits: map[string]int64{"": 12}},
		of(second, map[string]int64{"a": 1, "b": quota.MaxPermits, "": quota.MaxPermits}),
	}
	asks := []Note{{Windows: second, Needs: map[string]Need{
		"":  {Permits: 2000 * quota.MaxPermits, Poor: 7, Critical: 8, Edge: 9},
		"a": {Permits: 1, Sample: Sample{Salt: 3, Part: 1 << 32}},
	}}}
	if all, err := ReadNotes([]byte(encoded(t, asks...))); err != nil || !slices.EqualFunc(all, asks, same) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := ReadNotes([]byte(encoded(t, good...))); err != nil || !slices.EqualFunc(all, good, same) {
		t.Errorf("%+v, %v", all, err)
	}
	for name, text := range map[string]string{
		"no note":               "[]",
		"three notes":           encoded(t, one("", 1), one("a", 1), one("b", 1)),
		"no window":             encoded(t, of(nil, map[string]int64{"": 1})),
		"a long window":         encoded(t, of([]quota.Window{{Length: time.Hour}}, map[string]int64{"": 1})),
		"an empty window":       encoded(t, of([]quota.Window{second[0], {}}, map[string]int64{"": 1})),
		"many windows":          encoded(t, of(slices.Repeat(second, mostWindows+1), map[string]int64{"": 1})),
		"none of the provider":  encoded(t, one("", 0)),
		"too many of it":        encoded(t, one("", quota.MaxPermits+1)),
		"an ask for none":       encoded(t, ask("a", Need{})),
		"an ask for too many":   encoded(t, ask("a", Need{Permits: 2000*quota.MaxPermits + 1})),
		"an ask by a long name": encoded(t, ask(strings.Repeat("a", MaxKeyBytes+1), Need{Permits: 1})),
		"none of a key":         encoded(t, one("a", 0)),
		"less than none":        encoded(t, one("a", -1)),
		"too many of a key":     encoded(t, one("a", quota.MaxPermits+1)),
		"a long name":           encoded(t, one(strings.Repeat("a", MaxKeyBytes+1), 1)),
		"no JSON":               "[{",
		"too long":              strings.Repeat(" ", mostRead) + encoded(t, good...),
		"the second is no note": encoded(t, one("", 1), Note{}),
		"a loan of version 0":   `{"windows":[{"Length":1000000000,"Index":7}],"permits":12}`,
		"keys of version 0":     `{"windows":[{"Length":1000000000,"Index":7}],"permits":{"a":12}}`,
		"permits of version 0":  `[{"windows":[{"Length":1000000000,"Index":7}],"permits":12}]`,
	} {
		if all, err := ReadNotes([]byte(text)); err == nil {
			t.Errorf("%s: read %+v", name, all)
		}
	}
}

func same(a, b Note) bool {
	return slices.Equal(a.Windows, b.Windows) && maps.Equal(a.Permits, b.Permits) && maps.Equal(a.Needs, b.Needs)
}

// What instances of versions before read: of an earlier one a loan or an ask of the provider, and of keys
// under another name; of the last one a list like ours, in which an ask is in Permits. An earlier one
// takes a message for neither, and the last one takes an ask for nothing.
func TestVersionsBeforeReadNoAsk(t *testing.T) {
	t.Parallel()
	for _, n := range []Note{
		{Windows: second, Permits: map[string]int64{"": 12}},
		{Windows: second, Permits: map[string]int64{"a": 12}},
		{Windows: second, Needs: map[string]Need{"": {Permits: 12, Poor: 12}, "a": {Permits: 12}}},
	} {
		for what, into := range map[string]any{
			"the provider": &struct {
				Windows []quota.Window `json:"windows"`
				Permits int64          `json:"permits"`
			}{},
			"keys": &struct {
				Windows []quota.Window   `json:"windows"`
				Permits map[string]int64 `json:"permits"`
			}{},
		} {
			if err := json.Unmarshal([]byte(encoded(t, n)), into); err == nil {
				t.Errorf("of %s it reads %+v", what, into)
			}
		}
		var last []struct {
			Permits map[string]int64 `json:"permits"`
			Poor    int64            `json:"poor"`
		}
		if err := json.Unmarshal([]byte(encoded(t, n)), &last); err != nil || n.Needs != nil && (len(last[0].Permits) > 0 || last[0].Poor > 0) {
			t.Errorf("the last version reads %+v, %v", last, err)
		}
	}
}

// The poor and the critical permits of an ask are among those asked for.
func TestAnAskIsOfItsPermits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"permits":7,"poor":7,"critical":7,"edge":7}`: true,
		`{"permits":7}`:               true,
		`{"permits":7,"critical":8}`:  false,
		`{"permits":7,"critical":-1}`: false,
		`{"permits":7,"poor":8}`:      false,
		`{"permits":7,"edge":8}`:      false,
		`{"permits":0}`:               false,
	} {
		for _, name := range []string{"", "a"} {
			if _, err := ReadNotes(fmt.Appendf(nil, `[{"windows":[{"Length":1000000000,"Index":7}],"needs":{%q:%s}}]`, name, text)); (err == nil) != want {
				t.Errorf("%q: %s: %v", name, text, err)
			}
		}
	}
}

// Notes that wait together have the newer number of each key, and a bounded size.
func TestJoinNote(t *testing.T) {
	t.Parallel()
	needed := Need{Permits: 9, Poor: 4, Sample: Sample{Salt: 3}}
	before := Note{Windows: second, Permits: map[string]int64{"a": 1, "b": 2, "": 9}, Needs: map[string]Need{"": needed}}
	of := func(windows []quota.Window, permits map[string]int64) Note {
		return Note{Windows: windows, Permits: permits}
	}
	for name, step := range map[string]struct {
		add  Note
		want []Note
	}{
		"of keys": {
			of(second, map[string]int64{"b": 3, "c": 4}),
			[]Note{{Windows: second, Permits: map[string]int64{"a": 1, "b": 3, "c": 4, "": 9}, Needs: before.Needs}},
		},
		"of the provider": {
			of(second, map[string]int64{"": 5}),
			[]Note{{Windows: second, Permits: map[string]int64{"a": 1, "b": 2, "": 5}, Needs: before.Needs}},
		},
		"an ask": {
			Note{Windows: second, Needs: map[string]Need{"": {Permits: 5, Edge: 1}, "a": needed}},
			[]Note{{Windows: second, Permits: before.Permits, Needs: map[string]Need{"": {Permits: 5, Edge: 1}, "a": needed}}},
		},
		"of the next window": {
			of(next, map[string]int64{"c": 4}),
			[]Note{of(next, map[string]int64{"c": 4})},
		},
		"of other lengths": {
			of(minute, map[string]int64{"c": 4}),
			[]Note{before, of(minute, map[string]int64{"c": 4})},
		},
	} {
		if all := JoinNote([]Note{before}, step.add); !slices.EqualFunc(all, step.want, same) || len(before.Permits) != 3 {
			t.Errorf("%s: %+v, before %+v", name, all, before)
		}
	}
	three := JoinNote(JoinNote([]Note{before}, of(minute, map[string]int64{"a": 1})), of([]quota.Window{second[0], minute[0]}, map[string]int64{"a": 2}))
	if len(three) != 2 || three[1].Permits["a"] != 2 {
		t.Errorf("of three lists: %+v", three)
	}
	var all []Note
	for i := range 4000 {
		windows := second
		if i%2 == 0 {
			windows = minute
		}
		all = JoinNote(all, of(windows, map[string]int64{strings.Repeat("<", 200) + fmt.Sprint(i): quota.MaxPermits}))
	}
	if _, err := ReadNotes([]byte(encoded(t, all...))); err != nil || len(all) != 2 {
		t.Errorf("%d notes cannot be read: %v", len(all), err)
	}
	most := Need{Permits: mostNeeded, Poor: mostNeeded, Critical: mostNeeded, Edge: mostNeeded, Sample: Sample{Salt: 1<<64 - 1, Part: 1 << 32}}
	all = nil
	for i := range 1000 {
		all = JoinNote(all, Note{Windows: second, Needs: map[string]Need{strings.Repeat("<", 200) + fmt.Sprint(i): most}})
	}
	if read, err := ReadNotes([]byte(encoded(t, all...))); err != nil || len(read[0].Needs) < 8 {
		t.Errorf("%d asks of keys are read: %v", len(all[0].Needs), err)
	}
}

// FuzzNotes feeds what an instance reads of others. What is read obeys all bounds, and is
// written and read again as the same, also joined.
func FuzzNotes(f *testing.F) {
	f.Add([]byte(`[{"windows":[{"Length":1000000000,"Index":7}],"permits":{"":12}}]`))
	f.Add([]byte(`[{"windows":[{"Length":1000000000,"Index":7}],"needs":{"":{"permits":12000,"poor":7,"critical":1,"edge":2,"salt":9,"part":4294967296},"a":{"permits":3}}},{"windows":[{"Length":60000000000,"Index":0}],"permits":{"b":1}}]`))
	f.Add([]byte(`{"windows":[{"Length":1000000000,"Index":7}],"permits":12}`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ReadNotes(text)
		if err != nil {
			return
		}
		if len(text) > mostRead || len(all) < 1 || len(all) > mostNotes {
			t.Fatalf("%d bytes, %d notes", len(text), len(all))
		}
		var joined []Note
		for _, n := range all {
			if len(n.Windows) < 1 || len(n.Windows) > mostWindows {
				t.Errorf("read %+v", n)
			}
			for name, permits := range n.Permits {
				if len(name) > MaxKeyBytes || permits < 1 || permits > quota.MaxPermits {
					t.Errorf("read %d of %q", permits, name)
				}
			}
			for name, n := range n.Needs {
				if len(name) > MaxKeyBytes || n.Permits < 1 || n.Permits > 2000*quota.MaxPermits || min(n.Poor, n.Critical, n.Edge) < 0 || max(n.Poor, n.Critical, n.Edge) > n.Permits {
					t.Errorf("read %+v of %q", n, name)
				}
			}
			joined = JoinNote(joined, n)
		}
		for _, message := range [][]Note{all, joined} {
			again := encoded(t, message...)
			if o, err := ReadNotes([]byte(again)); len(again) <= mostRead && (err != nil || !slices.EqualFunc(o, message, same)) {
				t.Errorf("%+v was written and read as %+v, %v", message, o, err)
			}
		}
	})
}
