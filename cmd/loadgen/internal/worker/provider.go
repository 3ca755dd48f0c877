package worker

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

// Headers of a request: of which permit it is the use, and the run's secret, which
// proves that it comes from the fleet.
const (
	permitHeader = "Quotient-Permit"
	secretHeader = "Quotient-Secret"
)

// Provider is the API that the fleet calls. It counts requests of the fleet as they
// arrive, by its own clock, and refuses none. Those of strangers are refused and not
// counted.
type Provider struct {
	Address  string
	server   *http.Server
	arrivals *load.Provider
}

// StartProvider serves on a loopback port that the system chooses.
func StartProvider(lengths []time.Duration, secret string, fail func(error)) (*Provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{Address: listener.Addr().String(), arrivals: load.NewProvider(lengths, Memory)}
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
func (p *Provider) Close() load.Sums {
	ctx, done := context.WithTimeout(context.Background(), requestTimeout)
	defer done()
	_ = p.server.Shutdown(ctx) // requests that are open now are of no interest
	return p.arrivals.Sums()
}
