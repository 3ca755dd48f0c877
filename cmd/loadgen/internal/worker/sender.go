package worker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

const (
	// connections is how many requests a worker has under way at most, each on a
	// connection that is kept open.
	connections = 32
	// requestTimeout bounds a request.
	requestTimeout = 5 * time.Second
)

// uses are permits of one window that were asked for at about the same time:
// their requests are all alike.
type uses struct {
	load.Request
	n int64
}

// sender makes a request to the provider for each permit.
type sender struct {
	client *http.Client
	url    string
	secret string
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		pending    []uses // not begun, in order; none of 0
		sent, lost int64
		problem    string // of the first that was lost
		closed     bool   // no more will come: end when none is pending
	}
	more *sync.Cond
}

// newSender starts the sender; end stops it.
func newSender(address, secret string) *sender {
	s := &sender{url: "http://" + address + "/", secret: secret, client: &http.Client{
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
func (s *sender) send(n int64, as load.Request) {
	s.mu.Lock()
	if last := len(s.mu.pending) - 1; last >= 0 && s.mu.pending[last].Request == as {
		s.mu.pending[last].n += n
	} else {
		s.mu.pending = append(s.mu.pending, uses{as, n})
	}
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
		for len(s.mu.pending) == 0 {
			if s.mu.closed {
				return
			}
			s.more.Wait()
		}
		as := s.mu.pending[0].Request
		if s.mu.pending[0].n--; s.mu.pending[0].n == 0 {
			s.mu.pending = s.mu.pending[1:]
		}
		s.mu.Unlock()
		err := s.request(as)
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

func (s *sender) request(as load.Request) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	request.Header.Set(permitHeader, as.String())
	request.Header.Set(secretHeader, s.secret)
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
func (s *sender) end(into *Ended) {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.more.Broadcast()
	s.wg.Wait()
	s.client.CloseIdleConnections()
	into.Sent, into.Lost, into.Problem = s.mu.sent, s.mu.lost, s.mu.problem
}
