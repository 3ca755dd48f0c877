package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// What a response says is left bounds what is issued after it, of the provider's hour or a key's.
func TestTheStatedRestIsHeeded(t *testing.T) {
	reset := strconv.FormatInt(time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC).Unix(), 10) // by the bubble's clock
	for name, c := range map[string]struct {
		header http.Header
		left   int64 // 1,000 less the request, if nothing is heeded
	}{
		"GitHub":              {http.Header{"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {reset}}, 7},
		"a larger limit":      {http.Header{"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"1200"}}, 7},
		"used":                {http.Header{"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Used": {"990"}, "X-Ratelimit-Reset": {"1200"}}, 10},
		"used, no limit":      {http.Header{"X-Ratelimit-Used": {"990"}, "X-Ratelimit-Reset": {"1200"}}, 999},
		"nothing left":        {http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1200"}}, 0},
		"no reset":            {http.Header{"X-Ratelimit-Remaining": {"7"}}, 999},
		"no number":           {http.Header{"X-Ratelimit-Remaining": {"-7"}, "X-Ratelimit-Reset": {"1200"}}, 999},
		"more than we count":  {http.Header{"X-Ratelimit-Remaining": {"4000"}, "X-Ratelimit-Reset": {"1200"}}, 999},
		"longer than it can":  {http.Header{"X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"86000"}}, 999},
		"the draft":           {http.Header{"Ratelimit": {`"s";r=3, "h";r=12;t=900`}, "Ratelimit-Policy": {`"s";q=80;w=1, "h";q=1000;w=3600`}}, 12},
		"the draft, no size":  {http.Header{"Ratelimit": {`"h";r=12;t=900`}}, 12},
		"the draft, no reset": {http.Header{"Ratelimit": {`"h";r=12`}}, 999},
		"a token as name":     {http.Header{"Ratelimit": {`h;r=12;t=900`}, "Ratelimit-Policy": {`"h";q=1000;w=3600`}}, 12},
		"bytes, no name":      {http.Header{"Ratelimit": {`:aA==:;r=12;t=900, 5;r=9;t=900`}, "Ratelimit-Policy": {`:aA==:;q=1000`}}, 999},
		"rubbish":             {http.Header{"Ratelimit": {`;;"h`}, "Ratelimit-Policy": {"\x00"}}, 999},
	} {
		for _, byKey := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limits, err := quota.ParseLimits("10000/s,1000/h")
					if err != nil {
						t.Fatal(err)
					}
					var limiter *consumer.Limiter
					transport := &httplimit.Transport{Base: &provider{header: c.header}, MaxPause: -1, Stated: true}
					left := func() int64 { return limiter.TryTake(2000).N() }
					if byKey {
						limiter = openShaped(t, "10000/s", quota.Policy{Keys: quota.Keys{Limits: limits}})
						transport.Key = func(*http.Request) string { return "tenant" }
						left = func() (n int64) {
							for limiter.Key("tenant").TryAcquire() {
								n++
							}
							return n
						}
					} else {
						limiter = openShaped(t, "10000/s,1000/h", quota.Policy{})
					}
					transport.Limiter = limiter
					r, err := (&http.Client{Transport: transport}).Get("http://api.example/")
					if err != nil {
						t.Fatal(err)
					}
					_ = r.Body.Close()
					if n := left(); n != c.left {
						t.Errorf("by key %v: %d are left, want %d", byKey, n, c.left)
					}
				})
			})
		}
	}
}

// No header has the limiter panic, or issue more.
func FuzzStated(f *testing.F) {
	f.Add(`"h";r=12;t=900`, `"h";q=1000;w=3600`, "1000", "7", "946685000")
	f.Add(`:aA==:;r=12;t=900`, `:aA==:;q=1000`, "", "", "") // bytes, which are no key of a map in Go
	f.Fuzz(func(t *testing.T, limit, policy, of, remaining, reset string) {
		l := open(t, "1000/h")
		p := &provider{header: http.Header{
			"Ratelimit": {limit}, "Ratelimit-Policy": {policy}, "X-Ratelimit-Limit": {of}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset},
		}}
		r, err := (&http.Client{Transport: &httplimit.Transport{Base: p, Limiter: l, MaxPause: -1, Stated: true}}).Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if n := l.TryTake(2000).N(); n > 999 {
			t.Errorf("%d permits more", n)
		}
		_ = l.Close()
	})
}
