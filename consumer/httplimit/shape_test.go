package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// Under other shapes than fixed windows no window ends: t, and Retry-After, are
// when there is more. A permit of a sliding window counts for 502 slots of a 500th
// of it, and one of a bucket accrues a 500th later than the rate says.
func TestFieldsOfOtherShapes(t *testing.T) {
	for _, c := range []struct {
		name, limits string
		policy       quota.Policy
		pause        time.Duration // between two requests
		want         []string
	}{
		{"sliding", "3/10s", quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, 2 * time.Second, []string{
			`200 retry  policy "default-10s";q=3;w=10 limit "default-10s";r=2;t=10`, // the first permit comes back after 10.04 s
			`200 retry  policy "default-10s";q=3;w=10 limit "default-10s";r=1;t=9`,
			`200 retry  policy "default-10s";q=3;w=10 limit "default-10s";r=0;t=7`,
			`429 retry 5 policy "default-10s";q=3;w=10 limit "default-10s";r=0;t=5`,
			`429 retry 3 policy "default-10s";q=3;w=10 limit "default-10s";r=0;t=3`,
			`429 retry 1 policy "default-10s";q=3;w=10 limit "default-10s";r=0;t=1`,
			`200 retry  policy "default-10s";q=3;w=10 limit "default-10s";r=0;t=1`, // the second one is back after 12.04 s
		}},
		{"bucket", "10/10s", quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket, Burst: 2}}, 200 * time.Millisecond, []string{
			`200 retry  policy "default-10s";q=10;w=10 limit "default-10s";r=1;t=2`, // one accrues in 1.002 s
			`200 retry  policy "default-10s";q=10;w=10 limit "default-10s";r=0;t=1`,
			`429 retry 1 policy "default-10s";q=10;w=10 limit "default-10s";r=0;t=1`,
		}},
		// Of a long limit that slides it is not the end of a part of time, after which nothing comes back.
		{"a sliding hour", "1/h sliding", quota.Policy{}, 30 * time.Minute, []string{
			`200 retry  policy "default-h";q=1;w=3600 limit "default-h";r=0`,
			`429 retry 1872 policy "default-h";q=1;w=3600 limit "default-h";r=0`, // 102 parts of 36 s after it
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, err := httplimit.Handler(openShaped(t, c.limits, c.policy), httplimit.Options{})
				if err != nil {
					t.Fatal(err)
				}
				h := limit(ok)
				for i, want := range c.want {
					if got := says(ask(t, h, "")); got != want {
						t.Errorf("request %d:\ngot  %s\nwant %s", i, got, want)
					}
					time.Sleep(c.pause)
				}
			})
		})
	}
}

// Who needs several permits at once is not sent back for the first of them.
func TestRetryAfterIsForTheWholeCost(t *testing.T) {
	for name, want := range map[string]struct {
		policy quota.Policy
		retry  string
	}{
		"sliding": {quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, "11"}, // 4 permits of 0 s come back 10.04 s later, 2 of 2 s ago too
		"bucket":  {quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket}}, "9"},   // of 6, 2 s brought 1.2 again: 4.8 more take 8.02 s
		"fixed":   {quota.Policy{}, "8"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := openShaped(t, "6/10s", want.policy)
				limit, err := httplimit.Handler(limiter, httplimit.Options{Cost: func(*http.Request) int64 { return 6 }})
				if err != nil {
					t.Fatal(err)
				}
				limiter.TryTake(4).N()
				time.Sleep(2 * time.Second)
				limiter.TryTake(2).N()
				w := ask(t, limit(ok), "")
				if got := w.Result().Header.Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != want.retry {
					t.Errorf("%d, Retry-After %s, want %s", w.Code, got, want.retry)
				}
			})
		})
	}
}

// Who comes back after Retry-After is served, whatever the shape, the limits and
// the cost, if nobody else comes.
func TestRetryAfterIsTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := rapid.SampledFrom([]string{"5/s", "7/3s", "5/s,9/4s", "4/300ms"}).Draw(rt, "limits")
		policy := quota.Policy{Release: quota.Release{Shape: rapid.SampledFrom([]quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket}).Draw(rt, "shape")}}
		if policy.Shape == quota.ShapeBucket {
			policy.Burst = rapid.SampledFrom([]int64{0, 4}).Draw(rt, "burst")
		}
		failure := ""
		synctest.Test(t, func(t *testing.T) {
			limiter, cost := openShaped(t, limits, policy), int64(0)
			limit, err := httplimit.Handler(limiter, httplimit.Options{Cost: func(*http.Request) int64 { return cost }})
			if err != nil {
				failure = err.Error()
				return
			}
			h := limit(ok)
			for range 8 {
				time.Sleep(time.Duration(rapid.IntRange(0, 1500).Draw(rt, "ms")) * time.Millisecond)
				cost = rapid.Int64Range(1, 4).Draw(rt, "cost")
				w := ask(t, h, "")
				if failure = checkRetry(w, func(after time.Duration) *httptest.ResponseRecorder {
					time.Sleep(after)
					return ask(t, h, "")
				}); failure != "" {
					return
				}
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func checkRetry(w *httptest.ResponseRecorder, again func(after time.Duration) *httptest.ResponseRecorder) string {
	if w.Code == http.StatusOK {
		return ""
	}
	after, err := strconv.Atoi(w.Result().Header.Get("Retry-After"))
	if err != nil {
		return err.Error()
	}
	if second := again(time.Duration(after) * time.Second); second.Code != http.StatusOK {
		return strings.Join([]string{says(w), "then", says(second)}, "\n")
	}
	return ""
}
