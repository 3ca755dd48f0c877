// Package api gives permits to the processes of a host, over HTTP with JSON bodies.
//
//	POST /v1/acquire             {"provider": "payments/charge", "permits": 1, "max_wait": 0.2}
//	                             {"wants": [{"provider": "llm/requests"}, {"provider": "llm/tokens", "permits": 900}]}
//	                             "key", "class", "label", "partial" and "settle_within" are optional
//	POST /v1/permits/ID/settle   {"used": 3}
//	DELETE /v1/calls/ID          under a limit in flight
//	GET  /v1/providers           all that are open, GET /v1/providers/P one
//	GET  /healthz, /readyz, /metrics
//
// Times are in seconds. Errors and refusals are problem documents (RFC 9457).
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// Bounds on what a slow client can hold.
const (
	headerTime     = 5 * time.Second // to send the header of a request
	bodyTime       = 5 * time.Second // and its body
	idleTime       = 5 * time.Minute // between two requests
	answerTime     = maxWaitBound + 10*time.Second
	maxHeaderBytes = 4 << 10 // net/http adds 4 KiB
)

// Server answers requests at its listeners.
type Server struct {
	listen.HTTP
	host    *host.Host
	clients *clients
	// beside returns the sockets of the other quotads that serve the path of --socket; nil without --socket.
	beside func() ([]string, error)
	// move has the calls that wait ask another quotad.
	move func()
}

// build returns a server without listeners. Its Shutdown refuses the calls that wait.
func build(h *host.Host, l limits, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancelCause(context.Background())
	before, move := context.WithCancelCause(ctx) // of connections from before GiveWay
	s := &Server{host: h, clients: newClients(l, h.Registry(), log), move: func() { move(errMoved) }}
	s.Server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTime, ReadTimeout: headerTime + bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		ConnContext: func(_ context.Context, c net.Conn) context.Context {
			if before.Err() == nil {
				return withConnection(before, c)
			}
			return withConnection(ctx, c)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(func() { cancel(host.ErrClosed) })
	return s
}

// GiveWay has those that wait ask the other quotad, if there is one: the share of this one ends before some of them have
// their turn.
func (s *Server) GiveWay() (another bool, err error) {
	if another, err = s.HTTP.GiveWay(); another {
		s.move()
	}
	return another, err
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/acquire", s.acquire)
	mux.HandleFunc("POST /v1/permits/{id}/settle", s.settle)
	mux.HandleFunc("DELETE /v1/calls/{id}", s.done)
	mux.HandleFunc("GET /v1/providers", s.showAll)
	mux.HandleFunc("GET /v1/providers/{provider...}", s.show)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, struct{}{}) })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.host.Metrics())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if _, call := mux.Handler(&http.Request{Method: method, URL: r.URL}); call != "/" {
				w.Header().Set("Allow", method)
				fail(w, http.StatusMethodNotAllowed, fmt.Errorf("%.200q: must be a %s, not a %s", r.URL.Path, method, r.Method))
				return
			}
		}
		fail(w, http.StatusNotFound, fmt.Errorf("there is no call %.200q: permits are at POST /v1/acquire, the state at GET /v1/providers", r.URL.Path))
	})
	return mux
}
