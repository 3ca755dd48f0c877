package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

var noon = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// ask is by an instance, at and until in seconds after noon.
func ask(by string, at, until float64, alone bool) Ask {
	after := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	return Ask{By: by, At: after(at), Until: after(until), Alone: alone}
}

func TestABackoffBindsByAQuorum(t *testing.T) {
	for _, c := range []struct {
		what  string
		asks  []Ask
		n     int
		until float64 // seconds after noon; 0: nobody is held back
	}{
		{"nobody asks", nil, 3, 0},
		{"one where one is enough", []Ask{ask("a", 0, 30, false)}, 3, 30},
		{"one where two are needed", []Ask{ask("a", 0, 30, false)}, 4, 0},
		{"one whose calls are refused", []Ask{ask("a", 0, 30, true)}, 9, 30},
		{"two at once: as long as both ask", []Ask{ask("a", 0, 30, false), ask("b", 0, 20, false)}, 9, 20},
		{"two within 2 s", []Ask{ask("a", 0, 30, false), ask("b", 2, 32, false)}, 9, 30},
		{"two that are further apart", []Ask{ask("a", 0, 30, false), ask("b", 2.001, 32, false)}, 9, 0},
		{"two of three", []Ask{ask("a", 0, 10, false), ask("b", 1, 50, false), ask("c", 1, 40, false)}, 9, 40},
		{"the longest that counts alone", []Ask{ask("a", 0, 30, true), ask("b", 0, 40, true), ask("c", 0, 90, false)}, 9, 40},
	} {
		throttle := Throttle{Asks: c.asks}
		policy := quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffFleet}}
		now := noon.Add(3 * time.Second)
		pause := throttle.Pause(&policy, c.n, anybody, now)
		if got := pause.Until.Sub(noon).Seconds(); pause.Until.IsZero() != (c.until == 0) || c.until != 0 && got != c.until {
			t.Errorf("%s: until %v, want %v", c.what, pause.Until, c.until)
		}
		policy.Backoff = quota.BackoffInstance
		if pause := throttle.Pause(&policy, c.n, anybody, now); pause != (Ask{}) {
			t.Errorf("%s: %+v, and no instance holds back others", c.what, pause)
		}
	}
}

func anybody(string) bool { return true }

// A pause lasts no longer than the policy allows, by whose clock it may be, and only members
// count.
func TestABackoffIsBounded(t *testing.T) {
	policy := quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffFleet, BackoffMax: 10 * time.Second}, Timing: quota.Timing{ClockError: time.Second}}
	for _, c := range []struct {
		what  string
		ask   Ask
		now   float64
		until float64 // seconds after noon; 0: nobody is held back
	}{
		{"days", ask("a", 0, 259_200, true), 0, 10},
		{"days, read later", ask("a", 0, 259_200, true), 9, 10},
		{"days, read when it is over", ask("a", 0, 259_200, true), 10, 0},
		{"as late as clocks may differ", ask("a", 2, 259_200, true), 0, 12},
		{"from the future", ask("a", 2.001, 259_200, true), 0, 0},
		{"by a stranger", ask("b", 0, 5, true), 0, 0},
	} {
		throttle := Throttle{Asks: []Ask{c.ask}}
		now := noon.Add(time.Duration(c.now * float64(time.Second)))
		pause := throttle.Pause(&policy, 9, func(id string) bool { return id == "a" }, now)
		if got := pause.Until.Sub(noon).Seconds(); pause.Until.IsZero() != (c.until == 0) || c.until != 0 && got != c.until {
			t.Errorf("%s: until %v, want %v", c.what, pause.Until, c.until)
		}
	}
}

func TestQuorum(t *testing.T) {
	for _, c := range []struct{ n, want int }{{0, 1}, {1, 1}, {3, 1}, {4, 2}, {1000, 2}} {
		if got := Quorum(c.n); got != c.want {
			t.Errorf("of %d instances: %d, want %d", c.n, got, c.want)
		}
	}
}

// What an instance writes extends the back-off, by 250 ms at least.
func TestAnAskThatAddsNothingIsNotWritten(t *testing.T) {
	b := Throttle{Asks: []Ask{ask("a", 0, 30, false), ask("b", 0, 20, false)}} // until 20 by both
	policy := quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffFleet}}
	for _, c := range []struct {
		what string
		ask  Ask
		now  float64
		want bool
	}{
		{"less than there is", ask("c", 1, 15, false), 1, false},
		{"249 ms more", ask("c", 1, 20.249, false), 1, false},
		{"250 ms more", ask("c", 1, 20.25, false), 1, true},
		{"its own again", ask("a", 1, 30, false), 1, false},
		{"its own again, that counts alone now", ask("a", 1, 30, true), 1, true},
		{"its own, longer", ask("a", 1, 30.25, false), 1, true},
		{"one that is over", ask("c", 1, 41, false), 41, false},
	} {
		now := noon.Add(time.Duration(c.now * float64(time.Second)))
		if got := b.Adds(c.ask, b.Pause(&policy, 9, anybody, now), now); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestABackoffKeepsTheNewestAsks(t *testing.T) {
	var b Throttle
	for i := range 20 {
		b = b.With(ask(fmt.Sprint(i%10), float64(i), float64(i+30), false), anybody)
	}
	var by []string
	for _, a := range b.Asks {
		by = append(by, a.By)
	}
	if got, want := strings.Join(by, " "), "2 3 4 5 6 7 8 9"; got != want {
		t.Errorf("asks by %s, want %s", got, want)
	}
	if b = b.With(ask("1", 30, 40, false), func(id string) bool { return id == "5" }); len(b.Asks) != 2 {
		t.Errorf("strangers stay: %+v", b.Asks)
	}
}

func TestBackoffsThatAreRefused(t *testing.T) {
	good := Throttle{Asks: []Ask{ask("a", 0, 30, false)}}
	many := make([]Ask, maxAsks+1)
	for i := range many {
		many[i] = ask(fmt.Sprint(i), 0, 30, false)
	}
	for what, b := range map[string]Throttle{
		"no instance":            {Asks: []Ask{{At: noon, Until: noon}}},
		"an instance twice":      {Asks: []Ask{good.Asks[0], good.Asks[0]}},
		"a long name":            {Asks: []Ask{{By: strings.Repeat("x", 257), At: noon, Until: noon}}},
		"the year 1":             {Asks: []Ask{{By: "a", Until: noon}}},
		"the year 2200":          {Asks: []Ask{{By: "a", At: noon, Until: noon.AddDate(200, 0, 0)}}},
		"a long reason":          {Asks: []Ask{{By: "a", At: noon, Until: noon, Why: strings.Repeat("x", 129)}}},
		"more asks than allowed": {Asks: many},
	} {
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := ReadThrottle(text); err == nil || read != nil {
			t.Errorf("%s: read as %+v, %v", what, read, err)
		}
	}
	for _, text := range []string{"", "{", `[]`, `{"asks":[]}`, `{"schema":2,"asks":[]}`, `{"schema":1}` + strings.Repeat(" ", MaxThrottleBytes)} {
		if _, err := ReadThrottle([]byte(text)); err == nil {
			t.Errorf("%.40s: read", text)
		}
	}
}

// Whatever lies in the key: what is read can be written, and is read as the same.
func FuzzThrottle(f *testing.F) {
	b := Throttle{}.With(ask("a", 0, 30, true), anybody)
	text, err := json.Marshal(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, "reason")
	f.Add(text, strings.Repeat("\xff", 200))
	f.Add([]byte(`{"schema":1,"asks":[{"by":"a","at":"1970-01-01T00:00:00Z","until":"2199-12-31T23:59:59Z"}]}`), "\xff")
	f.Fuzz(func(t *testing.T, text []byte, why string) {
		b, err := ReadThrottle(text)
		if err != nil {
			return
		}
		policy := quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffFleet}}
		if until := b.Pause(&policy, 3, anybody, noon).Until; until.Sub(noon) > time.Minute+2*quota.DefaultClockError {
			t.Errorf("%s holds back until %v", text, until)
		}
		more := b.With(Ask{By: "me", At: noon, Until: noon, Why: why}, anybody)
		text, err = json.Marshal(more)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadThrottle(text)
		if err != nil || len(again.Asks) != len(more.Asks) || again.Asks[0].Until.Unix() != more.Asks[0].Until.Unix() {
			t.Errorf("%+v was written as %s and read as %+v, %v", more, text, again, err)
		}
	})
}

// What an earlier version wrote of its adaptive totals is left out.
func TestAThrottleOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	want := &Throttle{Asks: []Ask{{"a.x", noon, noon, "429", true}}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	old := `{"revision":9,"limits":"588/s","issued":2800,"refused":400,"author":"a.x","time":"2026-01-01T00:00:00Z",` + string(b[1:])
	got, err := ReadThrottle([]byte(old))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
