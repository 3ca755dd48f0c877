// Llm-client asks a language model whose provider limits requests and tokens a minute, and how many calls
// are under way. A call's cost is known with its answer: it reserves what answers usually cost, and settles.
// The provider is part of this process and counts by its own clock; `go run .` prints that.
//
// For a fleet set the three limits by quota-admin, as docs/providers.md does under "A language model", and open
// the limiters with a *coordinator.Session in place of consumer.Fixed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// most is how many tokens an answer may have: what such APIs call max_tokens.
const most = 600

type client struct {
	http                    *http.Client
	requests, tokens, calls *consumer.Limiter
}

// ask returns the answer to a prompt.
func (c *client) ask(ctx context.Context, prompt string) (text string, err error) {
	tokens := c.tokens.Usual(int64(len(prompt)/4 + most))
	permits, err := consumer.TakeAll(ctx, consumer.Forever, map[consumer.Taker]int64{c.requests: 1, c.tokens: tokens, c.calls: 1})
	if err != nil {
		return "", err
	}
	ctx, done := permits[c.calls].Begin(ctx) // it ends when the limit's hold does
	defer done()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://llm.example/v1/complete", strings.NewReader(prompt))
	if err != nil {
		return "", err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return "", err // what it has cost is not known: what was reserved stands
	}
	defer response.Body.Close()
	var answer answer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	return answer.Text, permits[c.tokens].Settle(answer.Usage.TotalTokens)
}

const (
	limit    = 9000 // tokens a minute
	inFlight = 12   // calls at once
)

// above says why a minute has more than the limit.
func above(tokens int64) string {
	if tokens <= limit {
		return ""
	}
	return fmt.Sprintf(": answers cost %d more than was reserved, which later minutes pay", tokens-limit)
}

func main() {
	const minute = 2 * time.Second // so that nobody has to wait for it
	ctx, stop := context.WithTimeout(context.Background(), 5*minute)
	defer stop()
	open := func(provider string, limit quota.Limit) *consumer.Limiter {
		source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{limit}}) // for a fleet: a *coordinator.Session
		limiter, err := consumer.Open(ctx, source, provider, consumer.Options{})
		if err != nil {
			panic(err)
		}
		return limiter
	}
	api := &provider{minute: minute, say: func() int { return rand.IntN(most) }}
	c := &client{
		&http.Client{Transport: api},
		open("llm/requests", quota.Limit{Permits: 60, Window: minute}),
		open("llm/tokens", quota.Limit{Permits: limit, Window: minute}),
		open("llm/calls", quota.Limit{Permits: inFlight, Window: 10 * time.Second, InFlight: true}), // none takes longer than 10 s
	}
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.ask(ctx, "Why is the sky blue?")
			}
		})
	}
	workers.Wait()
	for i, tokens := range api.counted() {
		fmt.Printf("minute %d: the provider counted %d of %d tokens%s\n", i, tokens, limit, above(tokens))
	}
	fmt.Printf("%d tokens are owed\n", c.tokens.Status().Debt)
	fmt.Printf("at most %d calls of %d were under way\n", api.mostOpen(), inFlight)
}
