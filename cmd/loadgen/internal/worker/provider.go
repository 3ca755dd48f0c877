package worker

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Headers of a request: of which permit it is the use, and the run's secret, which
// proves that it comes from the fleet.
const (
	permitHeader = "Quotient-Permit"
	secretHeader = "Quotient-Secret"
)

// provider is the API that the fleet calls, in a process of its own. It counts
// requests of the fleet as they arrive, by its own clock, and refuses none. Those
// of strangers are refused and not counted.
type provider struct {
	server *http.Server
	tell   func(Report)
}

// startProvider serves on a loopback port that the system chooses.
func startProvider(c *config.Config, secret string, room func() *load.Block, tell func(Report)) (*provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	arrivals := load.NewProvider(c.Lengths(), room)
	p := &provider{tell: tell, server: &http.Server{
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
			arrivals.Arrive(now, use)
			w.WriteHeader(http.StatusNoContent)
		}),
	}}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			tell(Report{Failed: "serving: " + err.Error()})
		}
	}()
	tell(Report{Listening: listener.Addr().String()})
	return p, nil
}

// obey ends the provider. It takes no other order.
func (p *provider) Obey(o Order) error {
	if o.End {
		ctx, done := context.WithTimeout(context.Background(), requestTimeout)
		defer done()
		_ = p.server.Shutdown(ctx) // what is open now, nobody waits for
		p.tell(Report{Ended: &Ended{}})
	}
	return nil
}
