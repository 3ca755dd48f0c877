// Package envoy answers Envoy's service envoy.service.ratelimit.v3.RateLimitService with a
// host's share, request by request, from memory.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// Bounds of what a client can send or hold: a process at the socket, or a certificate.
const (
	maxConnections    = 1024
	clientConnections = 256
	maxCalls          = 8000 // at a time
	clientCalls       = 1000
	idleTime          = 5 * time.Minute // of a connection without calls
	maxMessage        = 256 << 10       // bytes
	maxHeaders        = 16 << 10        // bytes
)

// Flags are the command line of the service.
type Flags struct {
	TLS            *listen.TLS
	Group          *string // that may use a socket; "": the process's own
	address, rules string

	mapping *mapping // of rules
}

// Register adds the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.address, "envoy", "", "`address` of Envoy's rate limit service: the path of a Unix socket, or host:port")
	set.StringVar(&f.rules, "envoy-rules", "", "YAML `file` that maps Envoy's descriptors to providers")
}

// unix reports whether the address is a path.
func (f *Flags) unix() bool { return filepath.IsAbs(f.address) }

// Check returns what is wrong with the flags, or with the files that they name.
func (f *Flags) Check() (err error) {
	_, _, malformed := net.SplitHostPort(f.address)
	switch {
	case f.address == "" && f.rules == "":
		return nil
	case f.address == "" || f.rules == "":
		return errors.New("--envoy and --envoy-rules: give both or none")
	case f.unix():
	case malformed != nil:
		return fmt.Errorf("--envoy %q: must be an absolute path or host:port", f.address)
	default:
		if err := f.TLS.Demand("envoy", f.address, "a Unix socket needs none"); err != nil {
			return err
		}
	}
	if f.mapping, err = load(f.rules); err != nil {
		return fmt.Errorf("--envoy-rules: %w", err)
	}
	return nil
}

// Listen opens the listener; nil, nil if the flags ask for none.
func (f *Flags) Listen(h *host.Host, log *slog.Logger) (listen.Server, error) {
	if f.address == "" {
		return nil, nil
	}
	connections := listen.NewOccupancy("connections", listen.Bounds{All: maxConnections, Client: clientConnections})
	seldom := rate.Sometimes{Interval: time.Minute}
	refuse := func(_ net.Conn, err error) {
		seldom.Do(func() { log.Warn("connections to --envoy are refused", "error", err) })
	}
	bound := func(l net.Listener) net.Listener {
		peer := listen.AnyTCP
		if f.unix() {
			peer = listen.Peer
		}
		return &listen.Bounded{Listener: l, Occupancy: connections, Peer: peer, Refuse: refuse}
	}
	var l net.Listener
	var err error
	if f.unix() {
		l, err = listen.Unix(f.address, *f.Group, log, bound)
	} else {
		l, err = f.TLS.Listen(f.address, "h2", bound)
	}
	if err != nil {
		return nil, fmt.Errorf("--envoy: %w", err)
	}
	log.Info("serving Envoys", "address", l.Addr().String(), "rules", f.rules)
	return newServer(l, &limits{
		rules: f.mapping, limiters: h, metrics: newMetrics(h.Registry()), log: log, seldom: rate.Sometimes{Interval: time.Minute},
		calls: listen.NewOccupancy("calls", listen.Bounds{All: maxCalls, Client: clientCalls}),
	}), nil
}

// Server serves Envoys at one listener.
type Server struct {
	listener net.Listener
	grpc     *grpc.Server
}

// newServer returns a server of a service.
func newServer(l net.Listener, service *limits) *Server {
	s := &Server{listener: l, grpc: grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(clientCalls), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(5*time.Second), grpc.Creds(identity{insecure.NewCredentials()}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)}
	rlsv3.RegisterRateLimitServiceServer(s.grpc, service)
	return s
}

// Serve returns nil after Shutdown, and otherwise why it ended.
func (s *Server) Serve() error { return s.grpc.Serve(s.listener) }

// GiveWay ends the server if another process serves its socket: what is asked of it needs no answer of this one. An
// Envoy keeps its connection until it is told to go away, and gRPC has no such word but the end.
func (s *Server) GiveWay() (another bool, err error) {
	if another, err = listen.GiveWay(s.listener); another {
		go s.grpc.GracefulStop() // which waits for the answers under way, as Shutdown does
	}
	return another, err
}

// Shutdown ends the server. Answers under way are sent, as long as ctx allows.
func (s *Server) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.grpc.GracefulStop()
	_ = s.listener.Close() // if Serve was never called
	return nil
}
