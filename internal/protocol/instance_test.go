package protocol

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var newYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func fullInstance() Instance {
	return Instance{
		ID: "worker-7.1a2b.1", Name: "worker-7", Host: "h", PID: 4711, Version: "v0.1.0",
		Started: newYear, From: newYear.Add(4 * time.Second), Until: newYear.Add(time.Hour),
	}
}

// The bytes are an agreement with every other version: a change here breaks it.
func TestIncarnationJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		i    Instance
		want string
	}{
		{Instance{ID: "x", Name: "worker-7"}, `{"schema":1,"name":"worker-7"}`},
		{fullInstance(), `{"schema":1,"name":"worker-7","host":"h","pid":4711,"version":"v0.1.0","started":"2027-01-01T00:00:00Z","from":"2027-01-01T00:00:04Z","until":"2027-01-01T01:00:00Z"}`},
		{Instance{Name: "utc", Started: newYear.In(time.FixedZone("", 3600))}, `{"schema":1,"name":"utc","started":"2027-01-01T00:00:00Z"}`},
	} {
		got, err := json.Marshal(Incarnation(test.i))
		if err != nil || string(got) != test.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, test.want)
		}
	}
	b, err := json.Marshal(Incarnation(fullInstance()))
	if err != nil {
		t.Fatal(err)
	}
	if i, err := ReadInstance(fullInstance().ID, b); err != nil || !reflect.DeepEqual(i, fullInstance()) {
		t.Errorf("got %+v, %v, want %+v", i, err, fullInstance())
	}
}

func TestReadInstanceRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, says string }{
		{`{}`, "schema 0"},
		{`null`, "schema 0"},
		{`{"schema":0}`, "schema 0"},
		{`{"schema":2}`, "schema 2 is not the one this version knows, 1"},
		// Another schema is named as such, whatever its fields look like.
		{`{"schema":2,"name":{}}`, "schema 2"},
		{`{"schema":"1"}`, "cannot unmarshal string"},
		{`{"schema":1.5}`, "cannot unmarshal number"},
		{`[]`, "cannot unmarshal array"},
		{`{"schema":1`, "unexpected end"},
		{`{"schema":1} {}`, "after top-level value"},
		{`{"schema":1,"name":"` + strings.Repeat("x", MaxInstanceBytes) + `"}`, "more than the most, 4096"},
	} {
		if _, err := ReadInstance("x", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.100s: %v, want %q", test.text, err, test.says)
		}
	}
}

func TestInstanceValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxNameBytes+1)
	for _, test := range []struct {
		name   string
		change func(i *Instance)
		fields string
	}{
		{"every field", func(*Instance) {}, ""},
		{"nothing but a name", func(i *Instance) { *i = Instance{Name: "x"} }, ""},
		{"texts too long", func(i *Instance) { i.Name, i.Host, i.Version = long, long, long }, "name host version"},
		{"no text", func(i *Instance) { i.Name = "\xff" }, "name"},
		{"times before 1970", func(i *Instance) { i.Started, i.From = time.Unix(-1, 0), time.Unix(-1, 0) }, "started from"},
		{"until after 2199", func(i *Instance) { i.Until = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }, "until"},
		{"never takes part", func(i *Instance) { i.Until = i.From }, ""},
		{"ends before it begins", func(i *Instance) { i.Until = i.From.Add(-1) }, "until"},
		{"ends, and took part always", func(i *Instance) { i.From = time.Time{} }, ""},
	} {
		i := fullInstance()
		test.change(&i)
		var got []string
		if joined, ok := i.Validate().(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				field, _, _ := strings.Cut(e.Error(), ": ")
				got = append(got, field)
			}
		}
		if strings.Join(got, " ") != test.fields {
			t.Errorf("%s: fields %q, want %q", test.name, got, test.fields)
		}
	}
}

// Whatever is valid must fit: else an instance could be written that nobody reads.
func TestLargestValidInstanceFits(t *testing.T) {
	t.Parallel()
	worst := strings.Repeat("\x01", MaxNameBytes) // six bytes each, escaped
	i := Instance{Name: worst, Host: worst, Version: worst, PID: 1 << 40,
		Started: newYear.Add(1), From: newYear.Add(1), Until: newYear.Add(2)}
	b, err := json.Marshal(Incarnation(i))
	if err == nil {
		_, err = ReadInstance("x", b)
	}
	if err != nil {
		t.Errorf("%d bytes: %v", len(b), err)
	}
}

// A value that was read and written once is then written the same for ever.
func FuzzReadInstance(f *testing.F) {
	full, err := json.Marshal(Incarnation(fullInstance()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"schema":1,"from":"9999-12-31T23:59:59Z","until":"0000-01-01T00:00:00Z"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		i, err := ReadInstance("x", text)
		if err != nil {
			return
		}
		first, err := json.Marshal(Incarnation(i))
		if err != nil || len(first) > MaxInstanceBytes {
			return // a text that grows when escaped
		}
		again, err := ReadInstance("x", first)
		if err != nil {
			t.Fatalf("%q was written as %s, which cannot be read: %v", text, first, err)
		}
		if second, err := json.Marshal(Incarnation(again)); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%q: first %s, then %s, %v", text, first, second, err)
		}
	})
}
