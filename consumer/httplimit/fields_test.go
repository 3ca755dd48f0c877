package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/consumer/httplimit"
)

// The fields are what a parser of structured fields reads, and Retry-After is
// never earlier than the end of a spent window.
func TestFieldsAreStructured(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure string
		synctest.Test(t, func(t *testing.T) {
			text := rapid.SampledFrom([]string{"3/s", "500/2s,2000/10s,10000/1m", "4/100ms,9/1500ms", "0/s"}).Draw(rt, "limits")
			limit, err := httplimit.Handler(open(t, text), httplimit.Options{
				Name: rapid.StringMatching(`[ -~]{1,20}`).Draw(rt, "name"),
				Cost: func(*http.Request) int64 { return 3 },
			})
			if err != nil {
				failure = err.Error()
				return
			}
			h := limit(ok)
			for range 6 {
				time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
				w := ask(t, h, "")
				failure = checkFields(w)
				if failure != "" {
					return
				}
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func checkFields(w *httptest.ResponseRecorder) string {
	h := w.Result().Header
	policies, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
	if err != nil {
		return err.Error()
	}
	limits, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
	if err != nil || len(limits) != len(policies) {
		return fmt.Sprintf("%v, %d limits for %d policies", err, len(limits), len(policies))
	}
	var longest int64
	for i := range limits {
		p, l := policies[i].(httpsfv.Item), limits[i].(httpsfv.Item)
		q, _ := p.Params.Get("q")
		left, _ := l.Params.Get("r")
		ends, _ := l.Params.Get("t")
		if p.Value != l.Value || left.(int64) < 0 || left.(int64) > q.(int64) || ends.(int64) < 1 {
			return fmt.Sprint(h)
		}
		if w, ok := p.Params.Get("w"); ok && ends.(int64) > w.(int64) {
			return fmt.Sprint(h)
		}
		if left.(int64) < 3 {
			longest = max(longest, ends.(int64))
		}
	}
	retry, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	switch w.Code {
	case http.StatusOK:
		if err == nil {
			return "served, with Retry-After"
		}
	case http.StatusTooManyRequests:
		if err != nil || retry < max(1, longest) {
			return fmt.Sprint(h)
		}
	default:
		return fmt.Sprint(w.Code)
	}
	return ""
}
