package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// connections is how many requests a worker has under way at most, each on a
	// connection that is kept open.
	connections = 32
	// requestTimeout bounds a request.
	requestTimeout = 5 * time.Second
)

// sender makes a request to the provider for each permit. Requests are all
// alike, so those that wait for a connection are a number.
type sender struct {
	client *http.Client
	url    string
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		pending    int64 // not begun
		sent, lost int64
		problem    string // of the first that was lost
		closed     bool   // no more will come: end when none is pending
	}
	more *sync.Cond
}

// newSender starts the sender; end stops it.
func newSender(address string) *sender {
	s := &sender{url: "http://" + address + "/", client: &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: requestTimeout}).DialContext,
			MaxConnsPerHost:     connections,
			MaxIdleConnsPerHost: connections,
		},
	}}
	s.more = sync.NewCond(&s.mu)
	for range connections {
		s.wg.Go(s.work)
	}
	return s
}

// send makes n requests, as soon as there are connections. It does not block.
func (s *sender) send(n int64) {
	s.mu.Lock()
	s.mu.pending += n
	s.mu.Unlock()
	if n == 1 {
		s.more.Signal()
	} else {
		s.more.Broadcast()
	}
}

// work makes one request after the other.
func (s *sender) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.mu.pending == 0 {
			if s.mu.closed {
				return
			}
			s.more.Wait()
		}
		s.mu.pending--
		s.mu.Unlock()
		err := s.request()
		s.mu.Lock()
		if err == nil {
			s.mu.sent++
			continue
		}
		if s.mu.lost++; s.mu.lost == 1 {
			s.mu.problem = err.Error()
		}
	}
}

func (s *sender) request() error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil { // or the connection is not kept
		return err
	}
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the provider answered %s", answer.Status)
	}
	return nil
}

// end waits until all requests are answered and fills in what came of them.
func (s *sender) end(into *ended) {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.more.Broadcast()
	s.wg.Wait()
	s.client.CloseIdleConnections()
	into.Sent, into.Lost, into.Problem = s.mu.sent, s.mu.lost, s.mu.problem
}
