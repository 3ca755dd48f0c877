package worker

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/internal/load"
)

// Headers of a request: of which permit it is the use, and the run's secret, which
// proves that it comes from the fleet.
const (
	permitHeader = "Quotient-Permit"
	secretHeader = "Quotient-Secret"
)

const (
	// connections is how many requests a worker has under way at most, each on a
	// connection that is kept open.
	connections = 32
	// requestTimeout bounds a request.
	requestTimeout = 5 * time.Second
)

// Provider is the API that the fleet calls. It counts requests of the fleet as they
// arrive, by its own clock. Those of strangers are refused and not counted.
type Provider struct {
	Address  string
	server   *http.Server
	arrivals load.Provider
}

// StartProvider serves on a loopback port that the system chooses.
func StartProvider(s load.Sheet, secret string, fail func(error)) (*Provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{Address: listener.Addr().String(), arrivals: s.New()}
	p.server = &http.Server{
		ReadHeaderTimeout: requestTimeout,
		MaxHeaderBytes:    16 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().UnixNano()
			if subtle.ConstantTimeCompare([]byte(r.Header.Get(secretHeader)), []byte(secret)) != 1 {
				http.Error(w, "this provider is for a run of loadgen", http.StatusForbidden)
				return
			}
			use, err := load.ParseRequest(r.Header.Get(permitHeader))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			p.arrivals.Arrive(now, use)
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("the provider: %w", err))
		}
	}()
	return p, nil
}

// Close ends the provider and returns what arrived.
func (p *Provider) Close() map[time.Duration][]load.Count {
	ctx, done := context.WithTimeout(context.Background(), requestTimeout)
	defer done()
	_ = p.server.Shutdown(ctx) // requests that are open now are of no interest
	return p.arrivals.Counts()
}

type sender struct {
	client     *http.Client
	url        string
	secret     string
	waiting    sync.WaitGroup // for room among the requests
	requests   errgroup.Group
	sent, lost atomic.Int64
}

func newSender(address, secret string) *sender {
	s := &sender{url: "http://" + address + "/", secret: secret, client: &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: connections},
	}}
	s.requests.SetLimit(connections)
	return s
}

// send makes n requests with permits, as soon as there are connections. It
// does not block.
func (s *sender) send(n int64, as load.Request) {
	s.waiting.Go(func() {
		for range n {
			s.requests.Go(func() error {
				if err := s.request(as); err != nil {
					s.lost.Add(1)
					return err
				}
				s.sent.Add(1)
				return nil
			})
		}
	})
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
	s.waiting.Wait()
	if err := s.requests.Wait(); err != nil {
		into.Problem = err.Error()
	}
	s.client.CloseIdleConnections()
	into.Sent, into.Lost = s.sent.Load(), s.lost.Load()
}
