package protocol

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

func TestPaceJSON(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0).UTC()
	limits := []quota.Limit{{Permits: 588, Window: time.Second}, {Permits: 17640, Window: time.Minute}}
	want := &Pace{Limits: limits, Issued: 2800, Refused: 400, Raises: 5, Author: "a.x", Time: at, Past: []PastPace{{limits[:1], at}}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadPace(b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, text := range map[string]string{
		"no JSON":          `{`,
		"another schema":   `{"schema":2,"limits":"5/s"}`,
		"no limits":        `{"schema":1}`,
		"empty limits":     `{"schema":1,"limits":""}`,
		"odd limits":       `{"schema":1,"limits":"-5/s"}`,
		"odd past":         `{"schema":1,"limits":"5/s","past":[{"limits":"x","time":"2026-01-01T00:00:00Z"}]}`,
		"undated past":     `{"schema":1,"limits":"5/s","past":[{"limits":"5/s"}]}`,
		"evidence below 0": `{"schema":1,"limits":"5/s","refused":-1}`,
		"raises below 0":   `{"schema":1,"limits":"5/s","raises":-1}`,
		"many raises":      `{"schema":1,"limits":"5/s","raises":101}`,
		"a long author":    `{"schema":1,"limits":"5/s","author":"` + strings.Repeat("x", 257) + `"}`,
		"too long":         `{"schema":1,"limits":"5/s","x":"` + strings.Repeat("x", MaxPaceBytes) + `"}`,
		"too many paces":   `{"schema":1,"limits":"5/s","past":[` + strings.Repeat(`{"limits":"5/s","time":"2026-01-01T00:00:00Z"},`, MaxPastPaces) + `{"limits":"5/s","time":"2026-01-01T00:00:00Z"}]}`,
	} {
		if p, err := ReadPace([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestPaceTotal(t *testing.T) {
	t.Parallel()
	pace := &Pace{Limits: []quota.Limit{{Permits: 600, Window: time.Second}}}
	policy := func(floor int64) *quota.Policy {
		return &quota.Policy{Throttling: quota.Throttling{Adaptive: quota.Adaptive{Floor: floor}}}
	}
	for _, test := range []struct {
		pace         *Pace
		floor, limit int64
		window       time.Duration
		want         int64
	}{
		{pace, 20, 1000, time.Second, 600},
		{pace, 20, 500, time.Second, 500},   // never above the limit
		{pace, 70, 1000, time.Second, 700},  // nor below the floor
		{pace, 20, 1000, time.Minute, 1000}, // no pace of that length
		{pace, 0, 1000, time.Second, 1000},  // not adaptive
		{nil, 20, 1000, time.Second, 1000},
		{&Pace{Limits: []quota.Limit{{Window: time.Second}}}, 1, 5, time.Second, 1}, // something tells that it takes more
		{pace, 20, 0, time.Second, 0},
		{&Pace{Limits: []quota.Limit{{Window: time.Second}}}, 100, quota.MaxPermits, time.Second, quota.MaxPermits},
	} {
		if got := test.pace.Total(policy(test.floor), test.limit, test.window); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
