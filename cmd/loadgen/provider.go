package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

// permitHeader tells the provider of which permit a request is the use.
const permitHeader = "Quotient-Permit"

// provider is the API that the fleet calls, in a process of its own. It counts
// requests as they arrive, by its own clock, and refuses none.
type provider struct {
	server *http.Server
	tell   func(report)
}

// startProvider serves on a loopback port that the system chooses.
func startProvider(s *setup, tell func(report)) (*provider, error) {
	file, err := newCountFile(s.Counts, func(err error) { tell(report{Failed: err.Error()}) })
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	arrivals := load.NewProvider(s.Lengths, file.room)
	p := &provider{tell: tell, server: &http.Server{
		ReadHeaderTimeout: requestTimeout,
		MaxHeaderBytes:    16 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().UnixNano()
			use, err := load.ParseRequest(r.Header.Get(permitHeader))
			if err != nil { // a stranger
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			arrivals.Arrive(now, use)
			w.WriteHeader(http.StatusNoContent)
		}),
	}}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			tell(report{Failed: "serving: " + err.Error()})
		}
	}()
	tell(report{Listening: listener.Addr().String()})
	return p, nil
}

// obey implements child.
func (p *provider) obey(o order) error {
	if o.End {
		ctx, done := context.WithTimeout(context.Background(), requestTimeout)
		defer done()
		_ = p.server.Shutdown(ctx) // what is open now, nobody waits for
		p.tell(report{Ended: &ended{}})
	}
	return nil
}
