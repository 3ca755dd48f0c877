// Github-client calls an API through an unchanged client library, go-github, for two installations
// of an app. Each may send 14 requests a second and 5,000 an hour: all it takes is the Transport of
// its http.Client. GitHub's hour begins with the first call, so the limit of an hour slides: no hour,
// wherever it begins, has more. Other programs may use the same installation: the Transport heeds what
// each response says is left of GitHub's hour (Stated). Where the API refuses one installation for some
// seconds, the program tells the fleet, and the other one goes on.
// The API is a server of this process; `go run .` prints what it answered.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/google/go-github/v83/github"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	left := int64(5000)
	hour := time.Now().Add(time.Hour).Unix()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		left-- // requests come one by one here
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(left, 10))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(hour, 10))
		if left == 4990 {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"message": "too fast", "documentation_url": "https://docs.github.com/rest#secondary-rate-limits"}`)
			return
		}
		fmt.Fprintf(w, `{"name": "answered at %s"}`, time.Now().Format("15:04:05.000"))
	}))
	defer api.Close()
	ctx := context.Background()
	source := consumer.Fixed(quota.Policy{ // for a fleet: a *coordinator.Session
		Limits: must(quota.ParseLimits("100/s")),
		Keys:   quota.Keys{Limits: must(quota.ParseLimits("14/s,5000/h sliding"))},
	})
	limiter := must(consumer.Open(ctx, source, "github", consumer.Options{}))
	defer limiter.Close()
	for _, installation := range []string{"installation-12", "installation-4711"} {
		transport := &httplimit.Transport{
			Limiter: limiter, MaxWait: 2 * time.Second,
			MaxPause: -1, // an answer 429 or 403 is of one installation
			Stated:   true,
			Key:      func(*http.Request) string { return installation },
		}
		client := must(github.NewClient(&http.Client{Transport: transport}).WithEnterpriseURLs(api.URL, api.URL))
		for range 15 {
			repo, _, err := client.Repositories.Get(ctx, "quotient-limiter", "quotient")
			// A 403 or 429 is an error of this client, with how long the installation is to wait, if GitHub says it.
			if refused, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
				wait := cmp.Or(refused.GetRetryAfter(), time.Minute)
				limiter.Key(installation).Stated(0, 0, time.Now().Add(wait))
				fmt.Println(installation, "waits", wait)
				break
			}
			fmt.Println(installation, must(repo, err).GetName())
		}
	}
	fmt.Println(limiter.Status().Issued, "permits")
}
