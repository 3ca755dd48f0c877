package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestReadLoan(t *testing.T) {
	t.Parallel()
	loan := Loan{Windows: []quota.Window{{Length: time.Second, Index: 7}, {Length: time.Minute, Index: 0}}, Permits: 12}
	text, err := json.Marshal(loan)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := ReadLoan(text); err != nil || l.Permits != 12 || len(l.Windows) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	in := func(windows ...quota.Window) string {
		text, _ := json.Marshal(Loan{Windows: windows, Permits: 12})
		return string(text)
	}
	for name, text := range map[string]string{
		"no window":     in(),
		"a long window": in(quota.Window{Length: time.Hour}),
		"an empty one":  in(quota.Window{Length: time.Second}, quota.Window{}),
		"no JSON":       "{",
		"too long":      strings.Repeat(" ", maxLoanBytes) + string(text),
	} {
		if l, err := ReadLoan([]byte(text)); err == nil {
			t.Errorf("%s: read %+v", name, l)
		}
	}
}

func TestAsks(t *testing.T) {
	t.Parallel()
	windows := []quota.Window{{Length: time.Second, Index: 7}}
	request := func(host string, permits int64) Request { return Request{Host: host, Need: Need{Permits: permits}} }
	of := func(a Asks, host string) (all []int64) {
		for _, n := range a.Of(host) {
			all = append(all, n.Permits)
		}
		return all
	}
	first := Asks{windows, []Request{request("a", 1), request("b", 2), request("", 3)}}
	both := first.With(Asks{windows, []Request{request("b", 4), request("", 5)}})
	later := first.With(Asks{[]quota.Window{{Length: time.Second, Index: 8}}, []Request{request("c", 6)}})
	for _, c := range []struct {
		asks Asks
		host string
		want []int64
	}{
		{first, "a", []int64{1}}, {first, "c", []int64{3}},
		{both, "a", []int64{1}}, {both, "b", []int64{4}}, {both, "c", []int64{5, 3}},
		{later, "a", nil}, {later, "c", []int64{6}},
	} {
		if got := of(c.asks, c.host); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %s is asked for %v, want %v", c.asks, c.host, got, c.want)
		}
	}
	for range 2 * maxRequests {
		both = both.With(Asks{windows, []Request{request("", 7)}})
	}
	text, err := json.Marshal(both)
	if err != nil || len(both.Requests) != maxRequests {
		t.Fatalf("%d requests, %v", len(both.Requests), err)
	}
	again, err := ReadAsks(text)
	if err != nil || len(again.Requests) != maxRequests || !slices.Equal(again.Windows, windows) {
		t.Errorf("%s is read as %+v, %v", text, again, err)
	}
	for name, bad := range map[string]Asks{
		"no request": {windows, nil}, "no window": {nil, first.Requests}, "nothing": {windows, []Request{request("a", 0)}},
		"too much": {windows, []Request{request("a", 2001*quota.MaxPermits)}}, "too many": {windows, slices.Repeat(first.Requests, maxRequests)},
		"more poor than asked": {windows, []Request{{"a", Need{Permits: 1, Poor: 2}}}},
	} {
		text, _ := json.Marshal(bad)
		if a, err := ReadAsks(text); err == nil {
			t.Errorf("%s: read %+v", name, a)
		}
	}
}

func FuzzAsks(f *testing.F) {
	f.Add([]byte(`{"windows":[{"Length":1000000000,"Index":7}],"requests":[{"host":"a","permits":12},{"permits":7,"poor":3,"salt":4,"part":5}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ReadAsks(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := ReadAsks(again); len(again) <= maxLoanBytes && (err != nil || !slices.Equal(o.Windows, a.Windows) || len(o.Requests) != len(a.Requests)) {
			t.Errorf("%+v was written and read as %+v, %v", a, o, err)
		}
	})
}

func FuzzLoan(f *testing.F) {
	f.Add([]byte(`{"windows":[{"Length":1000000000,"Index":7}],"permits":12}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ReadLoan(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := ReadLoan(again); err != nil || o.Permits != l.Permits || !slices.Equal(o.Windows, l.Windows) {
			t.Errorf("%+v was written and read as %+v, %v", l, o, err)
		}
	})
}
