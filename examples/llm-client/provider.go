package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// answer is what the provider says to a prompt.
type answer struct {
	Text  string `json:"text"`
	Usage struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// provider stands for an API, and for the way to it: it counts a call's tokens in the
// minute in which the call arrives, and the calls that it has not answered.
type provider struct {
	minute time.Duration
	say    func() int // draws an answer's tokens

	mu    sync.Mutex
	begun int64 // the minute of the first call
	count []int64

	open, most int // calls
}

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	arrived := time.Now()
	prompt, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	said := p.say()
	var a answer
	a.Text, a.Usage.TotalTokens = strings.Repeat("blah ", said), int64(len(prompt)/4+said)
	p.add(arrived, a.Usage.TotalTokens)
	defer p.end()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(time.Duration(said) * p.minute / 1000): // it says a thousand a minute
	}
	body, err := json.Marshal(a)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(body))), Request: r}, err
}

func (p *provider) add(at time.Time, tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	minute := at.UnixNano() / int64(p.minute)
	if p.count == nil {
		p.begun = minute
	}
	for int64(len(p.count)) <= minute-p.begun {
		p.count = append(p.count, 0)
	}
	p.count[minute-p.begun] += tokens
	p.open++
	p.most = max(p.most, p.open)
}

// end ends a call.
func (p *provider) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// mostOpen returns how many calls were under way at once.
func (p *provider) mostOpen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// counted returns the tokens of each minute.
func (p *provider) counted() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.count)
}
