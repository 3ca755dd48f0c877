package worker

import (
	"net/http"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		code     int
		after    string
		err      bool
		rejected bool
		pause    time.Duration
	}{
		{code: 200},
		{code: 204},
		{code: 400, rejected: true},
		{code: 422, rejected: true},
		{code: 500, rejected: true},
		{code: 401, err: true},
		{code: 404, err: true},
		{code: 408, err: true},
		{code: 502, err: true},
		{code: 301, err: true},
		{code: 429, err: true, pause: time.Second},
		{code: 429, after: "7", err: true, pause: 7 * time.Second},
		{code: 503, after: "Fri, 01 Jan 2027 00:00:09 GMT", err: true, pause: 9 * time.Second},
		{code: 503, after: "soon", err: true, pause: time.Second},
		{code: 429, after: "86400", err: true, pause: MaxRetryAfter},
	} {
		r := &http.Response{StatusCode: test.code, Header: http.Header{}}
		if test.after != "" {
			r.Header.Set("Retry-After", test.after)
		}
		a := Judge(r, nil, 1, now)
		if (a.Err != nil) != test.err || (len(a.Rejected) > 0) != test.rejected || a.RetryAfter != test.pause {
			t.Errorf("%d %q: got %+v", test.code, test.after, a)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "99999999999999999999", "Fri, 01 Jan 2027 00:00:09 GMT", "1.5", " 3"} {
		f.Add(s)
	}
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := retryAfter(s, now); d < 0 || d > MaxRetryAfter || !ok && d != 0 {
			t.Errorf("%q: %v %v", s, d, ok)
		}
	})
}
