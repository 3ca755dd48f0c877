// Github-client calls an API through an unchanged client library, go-github, at
// 10 requests a second and 5,000 an hour: all it takes is the Transport of its http.Client. The API
// is a server of this process that counts; `go run .` prints what it answered.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"name": "answered at %s"}`, time.Now().Format("15:04:05.000"))
	}))
	defer api.Close()
	ctx := context.Background()
	source := consumer.Fixed(quota.Policy{Limits: must(quota.ParseLimits("10/s,5000/h"))}) // for a fleet: a *coordinator.Session
	limiter := must(consumer.Open(ctx, source, "github", consumer.Options{}))
	defer limiter.Close()
	transport := &httplimit.Transport{Limiter: limiter, MaxWait: consumer.Forever}
	client := must(github.NewClient(&http.Client{Transport: transport}).WithEnterpriseURLs(api.URL, api.URL))
	for range 30 {
		repo, _, err := client.Repositories.Get(ctx, "quotient-limiter", "quotient")
		fmt.Println(must(repo, err).GetName())
	}
	fmt.Println(limiter.Status().Issued, "permits")
}
