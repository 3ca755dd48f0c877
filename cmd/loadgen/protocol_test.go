package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var somewhere = 7

// orders and reports are one of each kind.
var (
	orders = []order{
		{Setup: &setup{Limits: "5/s", Window: time.Second, Instances: 3, Etcd: connection{Endpoints: []string{"127.0.0.1:1"}, Password: "secret"}}},
		{Join: &joining{Slots: []int{0, 2}, Retry: true}},
		{Replace: &somewhere},
		{Limits: "7/s"},
		{Stop: 1},
		{End: true},
	}
	reports = []report{
		{Status: &status{Active: 3, Issued: 5, CPU: time.Second}},
		{Left: &departed{Slot: 0, Problem: "etcd is away"}},
		{Failed: "no etcd"},
		{Listening: "127.0.0.1:1"},
		{Ended: &ended{Took: []byte{1, 2}, Sent: 3}},
	}
)

func FuzzProtocol(f *testing.F) {
	for _, o := range orders {
		f.Add(marshal(f, o))
	}
	for _, r := range reports {
		f.Add(marshal(f, r))
	}
	f.Add([]byte(`{"end":true}{"end":true}`))
	f.Add([]byte(`{"end":true,"stop":5}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if o, err := parseOrder(line); err == nil {
			if again, err := parseOrder(marshal(t, o)); err != nil || !reflect.DeepEqual(tidy(t, o), tidy(t, again)) {
				t.Errorf("%s became %+v, %v", line, again, err)
			}
		}
		if r, err := parseReport(line); err == nil {
			if again, err := parseReport(marshal(t, r)); err != nil || !reflect.DeepEqual(tidy(t, r), tidy(t, again)) {
				t.Errorf("%s became %+v, %v", line, again, err)
			}
		}
	})
}

func marshal(t testing.TB, object any) []byte {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tidy makes no difference between an empty list and none.
func tidy(t testing.TB, object any) string { return string(marshal(t, object)) }

func TestBadLinesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                         "0 fields",
		`{"end":true,"stop":5}`:      "2 fields",
		`{"end":true} {"end":true}`:  "more than one",
		`{"finish":true}`:            "unknown field",
		`{"join":{"slot":3}}`:        "unknown field",
		`end`:                        "invalid",
		``:                           "EOF",
		`{"end":` + "\x00" + `true}`: "invalid",
	} {
		if o, err := parseOrder([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", line, o, err, want)
		}
	}
}

// A child that is told nonsense says so and ends; one whose orders end, ends.
func TestAChildThatIsToldNonsense(t *testing.T) {
	for _, c := range []struct{ role, orders, want string }{
		{roleWorker, "", ""},
		{roleWorker, "nonsense\n", "invalid"},
		{roleWorker, `{"end":true}` + "\n", "not set up"},
		{"janitor", `{"setup":{"limits":"5/s","window":1}}` + "\n", "janitor"},
		{roleWorker, strings.Repeat("x", maxLine+1), "too long"},
	} {
		var out bytes.Buffer
		err := serveChild(c.role, strings.NewReader(c.orders), &out)
		if c.want == "" {
			if err != nil || out.Len() > 0 {
				t.Errorf("%v, %s", err, out.String())
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(out.String(), `{"failed":`) {
			t.Errorf("%.40q: %v, said %s; want %q", c.orders, err, out.String(), c.want)
		}
	}
}
