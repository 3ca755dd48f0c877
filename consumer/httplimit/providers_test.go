package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// The programs of docs/providers.md, by provider. Each returns what the page shows.

func ofGitHub(limiter *consumer.Limiter) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter, MaxWait: time.Minute, Stated: true,
	}}
}

func ofGitHubApp(limiter *consumer.Limiter, installation string) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter, MaxWait: 2 * time.Second, Stated: true,
		MaxPause: -1, // an answer 429 or 403 is of one installation
		Key:      func(*http.Request) string { return installation },
	}}
}

// pauseAccount has the fleet heed the answer to one account's request.
func pauseAccount(limiter *consumer.Limiter, installation string, response *http.Response, body []byte) {
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	if seconds == 0 && refused(response.StatusCode, body) {
		seconds = 60 // the answer names no time
	}
	if seconds > 0 {
		limiter.Key(installation).Stated(0, 0, time.Now().Add(time.Duration(seconds)*time.Second))
	}
}

// refused reports whether an answer is about a limit, also if it names no time.
func refused(status int, body []byte) bool {
	return status == http.StatusTooManyRequests ||
		status == http.StatusForbidden && bytes.Contains(body, []byte("secondary rate limit"))
}

func ofAModel(ctx context.Context, requests, tokens *consumer.Limiter, call func() int64) error {
	chat := tokens.Label("chat")
	permits, err := consumer.TakeAll(ctx, time.Minute, map[consumer.Taker]int64{requests: 1, chat: chat.Usual(4096)})
	if err != nil {
		return err
	}
	total := call() // such as usage.total_tokens of the answer
	return permits[chat].Settle(total)
}

func ofShopify(limiter *consumer.Limiter) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter, MaxWait: time.Minute,
		MaxPause: -1, // an answer 429 is of one shop
		Key:      func(r *http.Request) string { return r.URL.Host },
		Cost:     func(*http.Request) int64 { return limiter.Usual(400) }, // of your dearest query: requestedQueryCost
	}}
}

func ofStripe(limiter *consumer.Limiter) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter, MaxWait: time.Second,
		Key: func(r *http.Request) string { return endpoint(r) },
		Refused: func(r *http.Response) (time.Duration, bool) {
			return time.Second, strings.HasPrefix(r.Header.Get("Stripe-Rate-Limited-Reason"), "global-")
		},
	}}
}

func ofAPartner(calls, requests *consumer.Limiter) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: calls, MaxWait: time.Minute,
		Base: &httplimit.Transport{Limiter: requests, MaxWait: time.Minute},
	}}
}

// callOf makes a request for an installation, where no more than so many calls may be open at once, and has the fleet
// heed what the answer says is left for that installation.
func callOf(calls, limiter *consumer.Limiter, installation string, client *http.Client, request *http.Request) ([]byte, error) {
	key := limiter.Key(installation)
	permits, err := consumer.TakeAll(request.Context(), 2*time.Second, map[consumer.Taker]int64{calls: 1, key: 1})
	if err != nil {
		return nil, err
	}
	ctx, done := permits[calls].Begin(request.Context()) // it ends when the limit's hold does
	defer done()                                         // the call is over, and its place free
	response, err := client.Do(request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	number := func(field string) int64 { // 0 if the answer lacks it
		n, _ := strconv.ParseInt(response.Header.Get(field), 10, 64)
		return n
	}
	if reset := number("X-RateLimit-Reset"); reset > 0 { // GitHub sends all three, or none
		key.Stated(number("X-RateLimit-Limit"), number("X-RateLimit-Remaining"), time.Unix(reset, 0))
	}
	seconds := number("Retry-After") // of a 429 or 403, beside the three: so it comes last
	if seconds == 0 && refused(response.StatusCode, body) {
		seconds = 60 // the answer names no time
	}
	if seconds > 0 {
		key.Stated(0, 0, time.Now().Add(time.Duration(seconds)*time.Second))
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, errors.New(response.Status)
	}
	return body, nil
}

// endpoint is a request's method, and its path without what names one object.
func endpoint(r *http.Request) string {
	parts := strings.SplitN(strings.Trim(r.URL.Path, "/"), "/", 3)
	return r.Method + " " + strings.Join(parts[:min(2, len(parts))], "/")
}

func ofYouTube(limiter *consumer.Limiter) *http.Client {
	return &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter, MaxWait: time.Second,
		Cost: func(r *http.Request) int64 {
			if r.Method == http.MethodGet {
				return 1
			}
			return 50
		},
	}}
}

// through has a client's requests answered in place of a network.
func through(c *http.Client, base http.RoundTripper) *http.Client {
	c.Transport.(*httplimit.Transport).Base = base
	return c
}

// GitHub says that others have used the token: the fleet has what is left.
func TestTheProgramForGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "14/s,5000/h sliding")
		left := 30
		c := through(ofGitHub(limiter), roundTrip(func(*http.Request) *http.Response {
			left--
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{
				"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {fmt.Sprint(left)}, "X-Ratelimit-Reset": {"1800"},
			}}
		}))
		for range 100 {
			if get(t, c, "http://api.example/") != nil {
				break
			}
		}
		if left != 0 {
			t.Errorf("%d of 30 are left, or asked for in vain", left)
		}
	})
}

// An installation of which nothing is left, or which GitHub refuses, stops no other.
func TestTheProgramForAGitHubApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := openShaped(t, "15000/s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "14/s,5000/h sliding")}})
		for _, of := range []string{"a", "b"} {
			left := 30
			c := through(ofGitHubApp(limiter, of), roundTrip(func(*http.Request) *http.Response {
				left--
				return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{
					"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {fmt.Sprint(left)}, "X-Ratelimit-Reset": {"1800"}, "Retry-After": {"60"},
				}}
			}))
			for range 100 {
				if get(t, c, "http://api.example/") != nil {
					break
				}
			}
			if left != 0 {
				t.Errorf("%s: %d of 30 are left, or asked for in vain", of, left)
			}
		}
	})
}

// An installation that GitHub refuses waits for a minute, beside another one, and no longer, also if the answer names no
// time. A 403 for lack of a right stops nobody.
func TestThePauseOfAnAccount(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		after, body string
		waits       bool
	}{
		"it names a time":   {http.StatusForbidden, "60", "", true},
		"a 429 without":     {http.StatusTooManyRequests, "", "", true},
		"a 403 without":     {http.StatusForbidden, "", `{"message": "You have exceeded a secondary rate limit."}`, true},
		"a right is lacked": {http.StatusForbidden, "", `{"message": "Resource not accessible by integration"}`, false},
		"a page about it":   {http.StatusOK, "", "what a secondary rate limit is", false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := http.Response{StatusCode: c.status, Header: http.Header{}}
			if c.after != "" {
				answer.Header.Set("Retry-After", c.after)
			}
			testPause(t, &answer, c.body, c.waits)
		})
	}
}

func testPause(t *testing.T, answer *http.Response, body string, waits bool) {
	synctest.Test(t, func(t *testing.T) {
		limiter := openShaped(t, "15000/s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "14/s,5000/h sliding")}})
		refused := func(installation string) bool {
			return limiter.Key(installation).Acquire(t.Context(), 2*time.Second) != nil
		}
		if refused("a") || refused("b") {
			t.Fatal("no permit at the start")
		}
		pauseAccount(limiter, "a", answer, []byte(body))
		if refused("a") != waits || refused("b") {
			t.Error("the wrong one waits, or none")
		}
		time.Sleep(57 * time.Second)
		if refused("a") != waits {
			t.Error("it does not wait until the end")
		}
		time.Sleep(3 * time.Second)
		if refused("a") {
			t.Error("it waits for longer")
		}
	})
}

// A call of a model books one request, and the tokens of its answer.
func TestTheProgramForAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, tokens := opened(990), open(t, "99000/30s")
		defer requests.Close()
		if err := ofAModel(t.Context(), requests, tokens, func() int64 { return 700 }); err != nil {
			t.Fatal(err)
		}
		if spent(requests) != 1 || spent(tokens) != 700 {
			t.Errorf("%d requests and %d tokens", spent(requests), spent(tokens))
		}
	})
}

// Each shop has a bucket of its own, and pays what the answer says. A refusal of one stops no other.
func TestTheProgramForShopify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := openShaped(t, "10000/s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "990/10s")}})
		c := through(ofShopify(limiter), roundTrip(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"2.0"}}, Body: http.NoBody}
		}))
		for _, shop := range []string{"a", "b", "a"} {
			began := time.Now()
			response, err := c.Get("http://" + shop + ".example/admin/api/graphql.json")
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("%s waited %v", shop, waited)
			}
			if err := httplimit.Settle(response, 12); err != nil {
				t.Error(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		}
		if spent(limiter) != 36 {
			t.Errorf("%d points are booked", spent(limiter))
		}
	})
}

// The account's limit pauses all, that of one endpoint or object nobody.
func TestTheProgramForStripe(t *testing.T) {
	for reason, paused := range map[string]bool{"": false, "endpoint-rate": false, "global-rate": true, "global-concurrency": true} {
		synctest.Test(t, func(t *testing.T) {
			limiter := openShaped(t, "100/s", quota.Policy{
				Release: quota.Release{Pacing: quota.PacingEven},
				Keys:    quota.Keys{Limits: limits(t, "25/s")},
			})
			c := through(ofStripe(limiter), roundTrip(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Stripe-Rate-Limited-Reason": {reason}}, Body: http.NoBody}
			}))
			if err := get(t, c, "http://api.example/v1/charges/ch_1/refund"); err != nil {
				t.Fatal(err)
			}
			if st := limiter.Status(); (st.PausedUntil.After(time.Now())) != paused {
				t.Errorf("%q: paused until %v", reason, st.PausedUntil)
			}
			key := limiter.Key("GET v1/charges")
			rest := func(n int64) error { _, err := key.Take(t.Context(), n, 900*time.Millisecond); return err }
			if !paused && (rest(25) == nil || rest(24) != nil) {
				t.Error("of 25 of this endpoint there are not 24 left")
			}
		})
	}
}

// No more than 20 calls are open, and no second of the clock has more than 5 new ones.
func TestTheProgramForAPartner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ofAPartner(open(t, "20 inflight hold=2m"), open(t, "5/s"))
		var mu sync.Mutex
		underWay, most := 0, 0
		perSecond := map[int64]int{}
		through(&http.Client{Transport: c.Transport.(*httplimit.Transport).Base}, roundTrip(func(*http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			underWay++
			most = max(most, underWay)
			perSecond[time.Now().Unix()]++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		}))
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				response, err := c.Get("http://partner.example/")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(7*time.Second + time.Millisecond) // it reads the answer
				mu.Lock()
				underWay--
				mu.Unlock()
				_ = response.Body.Close()
			})
		}
		callers.Wait()
		if most != 20 {
			t.Errorf("%d calls were under way", most)
		}
		for second, n := range perSecond {
			if n > 5 {
				t.Errorf("%d calls in second %d", n, second)
			}
		}
	})
}

// What GitHub's answers say is left of an installation's hour, and until when it is to wait, holds for that installation
// alone. The wait takes nothing of the hour's rest. Without Retry-After it lasts for a minute.
func TestTheProgramForInstallationsAtOnce(t *testing.T) {
	t.Run("it names a time", func(t *testing.T) { testInstallationsAtOnce(t, http.Header{"Retry-After": {"60"}}, "") })
	t.Run("it names none", func(t *testing.T) {
		testInstallationsAtOnce(t, http.Header{}, "You have exceeded a secondary rate limit.")
	})
}

func testInstallationsAtOnce(t *testing.T, refusal http.Header, text string) {
	synctest.Test(t, func(t *testing.T) {
		calls := open(t, "100 inflight hold=2m")
		limiter := openShaped(t, "15000/s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "14/s,5000/h sliding")}})
		reset := time.Now().Add(30 * time.Minute)
		left, refuse := map[string]int{"a": 30, "b": 300}, true
		client := &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
			left[r.URL.Host]--
			header := http.Header{
				"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {fmt.Sprint(left[r.URL.Host])}, "X-Ratelimit-Reset": {fmt.Sprint(reset.Unix())},
			}
			if r.URL.Host == "a" && refuse {
				maps.Copy(header, refusal)
				return &http.Response{Status: "403 Forbidden", StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(text)), Header: header}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: header}
		})}
		call := func(of string) error {
			_, err := callOf(calls, limiter, of, client, request(t.Context(), t, of))
			return err
		}
		if err := call("a"); err == nil || err.Error() != "403 Forbidden" || call("b") != nil {
			t.Fatalf("no permit at the start, or no refusal: %v", err)
		}
		refuse = false
		if call("a") == nil || call("b") != nil {
			t.Error("the wrong one waits, or none")
		}
		time.Sleep(time.Minute)
		for range 100 {
			if call("a") != nil {
				break
			}
		}
		if left["a"] != 0 || call("a") == nil || call("b") != nil {
			t.Errorf("%d of 30 are left, or asked for in vain; or the other waits too", left["a"])
		}
		time.Sleep(time.Until(reset) + time.Minute)
		if call("a") != nil {
			t.Error("it waits for longer than GitHub's hour")
		}
	})
}

// request asks for something of an installation, which is the host.
func request(ctx context.Context, t *testing.T, installation string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+installation+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A crowd that waits for one account holds no place: callers for another account have all of its permits, and no
// more calls are open than may be.
func TestAnAccountThatIsSpentHoldsNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := open(t, "100 inflight hold=2m")
		limiter := openShaped(t, "15000/s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "14/s")}})
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		underWay, most, sent := 0, 0, map[string]int{}
		client := &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
			mu.Lock()
			underWay++
			most = max(most, underWay)
			sent[r.URL.Host]++
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			underWay--
			mu.Unlock()
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		})}
		var callers sync.WaitGroup
		for i := range 150 + 10 {
			of := "crowd"
			if i >= 150 {
				of = "other"
			}
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = callOf(calls, limiter, of, client, request(ctx, t, of))
				}
			})
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		clear(sent)
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		if n := sent["other"]; n < 13*10 || most > 100 {
			t.Errorf("%d calls in 10 s for the other account, %d for that of the crowd; %d were open at once", n, sent["crowd"], most)
		}
		mu.Unlock()
		cancel()
		callers.Wait()
	})
}

// Days begin at midnight there, also on the days with 23 and 25 hours.
func TestTheProgramForYouTube(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := openShaped(t, "10000/d", quota.Policy{Zone: "America/Los_Angeles"})
		var sent int64
		c := through(ofYouTube(limiter), roundTrip(func(*http.Request) *http.Response {
			sent += 50
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		}))
		there := must(time.LoadLocation("America/Los_Angeles"))
		for _, day := range []time.Time{
			time.Date(2000, 4, 2, 0, 0, 0, 0, there), time.Date(2000, 4, 3, 0, 0, 0, 0, there),
			time.Date(2000, 10, 29, 0, 0, 0, 0, there), time.Date(2000, 10, 30, 0, 0, 0, 0, there),
		} {
			time.Sleep(time.Until(day))
			sent = 0
			for {
				response, err := c.Post("http://api.example/comments", "", nil)
				if err != nil {
					break
				}
				_ = response.Body.Close()
			}
			if sent != 10_000 {
				t.Errorf("%v: %d units", day, sent)
			}
		}
	})
}

// bucket is how a provider counts that lets bursts through.
type bucket struct {
	size, rate float64 // rate a second
	level      float64
	at         time.Time
}

// take reports whether n units are there, and takes them.
func (b *bucket) take(n float64) bool {
	now := time.Now()
	b.level = min(b.size, b.level+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	if b.level < n {
		return false
	}
	b.level -= n
	return true
}

// A bucket is never found empty by windows of which two fill it, whenever callers come, and though
// calls take up to a hundredth of a window to arrive.
func TestTwoWindowsFitABucket(t *testing.T) {
	const cost = 15 // of a call
	for _, c := range []struct {
		limit string
		bucket
		fits bool
	}{
		{"990/10s", bucket{size: 2000, rate: 100}, true}, {"495/30s", bucket{size: 1000, rate: 1000. / 60}, true},
		{"1020/10s", bucket{size: 2000, rate: 100}, false}, {"990/10s", bucket{size: 1900, rate: 100}, false},
	} {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			limiter := open(t, c.limit)
			random := rand.New(rand.NewPCG(seed, 1))
			window := limits(t, c.limit)[0].Window
			var mu sync.Mutex
			b, empty, n := c.bucket, 0, 0
			var calls sync.WaitGroup
			for range 60 {
				// Callers come just before a window's end, or at any time, and stay for up to three.
				start := time.Now().Truncate(window).Add(window + time.Duration(random.Int64N(int64(4*window))))
				if random.IntN(2) == 0 {
					start = start.Truncate(window).Add(-time.Millisecond)
				}
				time.Sleep(time.Until(start))
				for end := start.Add(time.Duration(random.Int64N(int64(3 * window)))); time.Now().Before(end); {
					if _, err := limiter.Take(t.Context(), cost, time.Until(end)); err != nil {
						break
					}
					way := time.Duration(random.Int64N(int64(window / 100)))
					calls.Go(func() {
						time.Sleep(way)
						mu.Lock()
						defer mu.Unlock()
						n++
						if !b.take(cost) {
							empty++
						}
					})
				}
			}
			calls.Wait()
			if (empty == 0) != c.fits || n < 1000 {
				t.Errorf("%s, a bucket of %.0f: empty for %d of %d calls (seed %d)", c.limit, c.size, empty, n, seed)
			}
		})
	}
}
