package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// fieldsOf reads fields, one a line.
func fieldsOf(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

const noon = "Date: Thu, 01 Jan 2026 12:00:00 GMT\n" // Unix time 1767268800

func TestStated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ fields, want string }{
		"the draft":                 {`RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400` + "\nRateLimit: \"daily\";r=1;t=7", "100/1m0s 1000/24h0m0s"},
		"over two lines":            {"RateLimit-Policy: \"a\";q=100;w=60\nRateLimit-Policy: \"b\";q=2;w=1", "100/1m0s 2/1s"},
		"of requests":               {`RateLimit-Policy: "a";q=100;w=60;qu="requests"`, "100/1m0s"},
		"of bytes":                  {`RateLimit-Policy: "a";q=100;w=60;qu="content-bytes"`, ""},
		"without a window":          {"RateLimit-Policy: \"a\";q=100\nRateLimit: \"a\";r=50;t=30", "100/30s"},
		"without a window or reset": {"RateLimit-Policy: \"a\";q=100\nRateLimit: \"b\";r=50;t=30", ""},
		"what is left alone":        {`RateLimit: "a";r=50;t=30`, ""},
		"an earlier draft":          {"RateLimit: limit=100, remaining=50, reset=5\nRateLimit-Policy: 100;w=10, 1000;w=3600", "100/10s 1000/1h0m0s"},
		"an earlier one alone":      {"RateLimit: limit=100, remaining=50, reset=5", "100/5s"},
		"a still earlier one":       {"RateLimit-Limit: 100, 100;w=60;comment=\"x\"\nRateLimit-Remaining: 7\nRateLimit-Reset: 30", "100/30s 100/1m0s"},
		"seconds":                   {"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 7\nX-RateLimit-Reset: 60", "100/1m0s"},
		"a second":                  {"X-RateLimit-Limit: 100\nX-RateLimit-Reset: 1", ""}, // or a quarter of one
		"no reset":                  {"X-RateLimit-Limit: 100", ""},
		"Unix time":                 {noon + "X-RateLimit-Limit: 5000\nX-RateLimit-Reset: 1767272400", "5000/59m59s"},
		"in milliseconds":           {noon + "X-RateLimit-Limit: 5000\nX-RateLimit-Reset: 1767268830500", "5000/29.5s"},
		"Unix time, no date":        {"X-RateLimit-Limit: 5000\nX-RateLimit-Reset: 1767272400", ""},
		"Unix time, past":           {noon + "X-RateLimit-Limit: 5000\nX-RateLimit-Reset: 1767268799", ""},
		"with another hyphen":       {noon + "x-rate-limit-limit: 900\nx-rate-limit-reset: 1767269701", "900/15m0s"},
		"its own window":            {"RateLimit-Limit: 100;w=21600\nRateLimit-Remaining: 76;w=21600", "100/6h0m0s"},
		"a date as reset":           {noon + "X-RateLimit-Limit: 5\nX-RateLimit-Reset: 2026-01-01T13:00:00Z", ""},
		"a token as limit":          {"X-RateLimit-Limit: unlimited\nX-RateLimit-Reset: 60", ""},
		"no limit":                  {"X-RateLimit-Limit: 0\nX-RateLimit-Reset: 60\nRateLimit-Policy: \"a\";q=-1;w=60, \"b\";q=1;w=-1, \"c\";q=1.5;w=1", ""},
		"huge":                      {`RateLimit-Policy: "a";q=999999999999999;w=999999999999999`, "1000000000000/24h0m0s"},
		"broken":                    {"RateLimit-Policy: \"a;q=1;w=1\nRateLimit: ((\nX-RateLimit-Limit: 1,\nX-RateLimit-Reset: 60", ""},
		"bytes for a name":          {"RateLimit-Policy: :YQ==:;q=1;w=1, (1 2);w=3\nRateLimit: :YQ==:;t=1, ?1;t=5", ""},
		"too long":                  {`RateLimit-Policy: "a";q=1;w=1;x="` + strings.Repeat("x", 2048) + `"`, ""},
		"too many":                  {"RateLimit-Policy: 1;w=1" + strings.Repeat(", 1;w=1", 99), strings.TrimSpace(strings.Repeat(" 1/1s", 16))},
	} {
		var got []string
		for _, l := range httplimit.Stated(fieldsOf(test.fields)) {
			got = append(got, strings.TrimSuffix(quota.Limit{Permits: l.Permits, Window: time.Second}.String(), "s")+l.Window.String())
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}

// What a provider says can be read, whatever it is, and is bounded.
func FuzzStated(f *testing.F) {
	f.Add(`"a";q=100;w=60, 7;w=1`, `"a";r=50;t=30`, "100, 100;w=60", "1767272400", "Thu, 01 Jan 2026 12:00:00 GMT")
	f.Add(`"a";q=100;qu="requests"`, "limit=100, remaining=50, reset=30", "5000", "60", "")
	f.Add(`:YQ==:;q=1, (1 2);w=3`, `?1;t=1.5, %"x";t=@1`, "999999999999999;w=999999999999999", "-1.5", "Mon, 01 Jan 0001 00:00:00 GMT")
	f.Add("\xff", "((", "1,", "1e9", "\x00")
	f.Fuzz(func(t *testing.T, policy, limit, most, reset, date string) {
		h := http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limit}, "X-Ratelimit-Limit": {most}, "X-Ratelimit-Reset": {reset}, "Date": {date}}
		limits := httplimit.Stated(h)
		if len(limits) > 16 {
			t.Errorf("%d limits", len(limits))
		}
		for _, l := range limits {
			if l.Permits < 1 || l.Permits > quota.MaxPermits || l.Window < time.Second || l.Window > 24*time.Hour {
				t.Errorf("%+v", l)
			}
		}
	})
}

func TestTransportLearns(t *testing.T) {
	for _, learn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limiter := open(t, "1000/s,9000/1m")
			p := &provider{header: fieldsOf(`RateLimit-Policy: "a";q=600;w=1, "b";q=9000;w=60`)}
			if err := get(t, &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: limiter, Learn: learn}}, "http://api.example/"); err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			if learn {
				want = 600
			}
			if all := limiter.Status().Limits; all[0].Learned != want || all[1].Learned != 0 {
				t.Errorf("learn %v: %+v", learn, all)
			}
		})
	}
}
