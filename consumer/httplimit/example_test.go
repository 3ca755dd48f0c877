package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// opened returns a limiter without etcd. In production the source is a
// *coordinator.Session.
func opened(permits int64) *consumer.Limiter {
	source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Minute}}})
	limiter, err := consumer.Open(context.Background(), source, "payments/charge",
		consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return limiter
}

// Requests wait for their permits for a second at most; what the provider asks
// for with Retry-After is heeded for a minute at most.
func ExampleTransport() {
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer provider.Close()
	limiter := opened(0)
	defer limiter.Close()

	client := &http.Client{Transport: &httplimit.Transport{
		Limiter:  limiter,
		MaxWait:  time.Microsecond, // in production more than a window, such as 2*time.Second
		MaxPause: time.Minute,
	}}
	response, err := client.Get(provider.URL)
	if limited, ok := errors.AsType[consumer.LimitError](err); ok {
		fmt.Println("not sent:", limited.Reason)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	// Output: not sent: share spent
}

// One Transport for several providers, chosen by host; uploads cost more, and
// health checks nothing.
func ExampleTransport_pick() {
	charge, search := opened(1000), opened(1000)
	defer charge.Close()
	defer search.Close()

	limiters := map[string]*consumer.Limiter{"pay.example.com": charge, "search.example.com": search}
	client := &http.Client{Transport: &httplimit.Transport{
		Pick: func(r *http.Request) *consumer.Limiter { return limiters[r.URL.Host] },
		Cost: func(r *http.Request) int64 {
			switch {
			case r.URL.Path == "/health":
				return 0
			case r.Method == http.MethodPut:
				return 5
			}
			return 1
		},
		MaxWait: consumer.Forever, // as long as the request's context
	}}
	client.Transport.(*httplimit.Transport).Base = &provider{} // in place of a network
	for _, path := range []string{"/health", "/refund"} {
		response, err := client.Get("http://pay.example.com" + path)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
	}
	fmt.Println(charge.Status().Shortest().Used, "permit")
	// Output: 1 permit
}

// Calls of a language model take what they usually cost, and settle what the answer says.
func ExampleSettle() {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"usage": {"total_tokens": 120}}`)
	}))
	defer model.Close()
	limiter := opened(10_000)
	defer limiter.Close()

	tokens := limiter.Label("chat")
	client := &http.Client{Transport: &httplimit.Transport{
		Limiter: tokens,
		MaxWait: consumer.Forever,
		Cost:    func(*http.Request) int64 { return tokens.Usual(4096) },
	}}
	response, err := client.Get(model.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close() // it books the cost
	var answer struct {
		Usage struct {
			TotalTokens int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		fmt.Println(err)
		return
	}
	if err := httplimit.Settle(response, answer.Usage.TotalTokens); err != nil {
		fmt.Println(err)
		return
	}
	_ = response.Body.Close()
	fmt.Println(limiter.Status().Shortest().Used, "tokens")
	// Output: 120 tokens
}

// A route whose limit all servers share.
func Example_server() {
	limiter := opened(1000)
	defer limiter.Close()
	charge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "charged") })

	limited, err := httplimit.Handler(limiter, httplimit.Options{Name: "charge"})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charge", limited(charge))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/charge", nil))
	fmt.Println(w.Result().Header.Get("RateLimit-Policy"))
	fmt.Println(w.Body)
	// Output:
	// "charge-1m";q=1000;w=60
	// charged
}
