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
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// Bounds of what a client can send or hold.
const (
	maxConnections = 1000
	maxCalls       = 1000      // of a connection, at a time
	maxMessage     = 256 << 10 // bytes
	maxHeaders     = 16 << 10  // bytes
)

// Flags are the command line of the service.
type Flags struct {
	address, group, rules string
	tcp                   listen.TCP

	mapping *mapping // of rules
}

// Register adds the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.address, "envoy", "", "`address` of Envoy's rate limit service: the path of a Unix socket, or host:port")
	set.StringVar(&f.group, "envoy-group", "", "`group` that may use the socket of --envoy, as in --group; default: the group of this process")
	set.StringVar(&f.rules, "envoy-rules", "", "YAML `file` that maps Envoy's descriptors to providers")
	f.tcp.Register(set, "envoy", "envoy-", "needed for other hosts than loopback", "Envoys")
}

// unix reports whether the address is a path.
func (f *Flags) unix() bool { return filepath.IsAbs(f.address) }

// Check returns what is wrong with the flags, or with the files that they name.
func (f *Flags) Check() (err error) {
	host := f.address
	if f.unix() {
		host = ""
	}
	switch err := f.tcp.Check(host); {
	case f.address == "" && f.rules == "" && f.group == "":
		return err
	case f.address == "" || f.rules == "":
		return errors.New("--envoy and --envoy-rules: one needs the other")
	case f.group != "" && !f.unix():
		return errors.New("--envoy-group: only a Unix socket has a group")
	case !f.unix() && !strings.Contains(f.address, ":"):
		return fmt.Errorf("--envoy %q: must be an absolute path or host:port", f.address)
	case err != nil:
		return err
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
	bound := func(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConnections) }
	var l net.Listener
	var err error
	if f.unix() {
		l, err = listen.Unix(f.address, f.group, bound)
	} else {
		l, err = f.tcp.Listen(f.address, "h2", bound)
	}
	if err != nil {
		return nil, fmt.Errorf("--envoy: %w", err)
	}
	log.Info("serving Envoys", "address", l.Addr().String(), "rules", f.rules)
	return newServer(l, &limits{
		rules: f.mapping, limiters: h, metrics: newMetrics(h.Registry()), log: log, seldom: rate.Sometimes{Interval: time.Minute},
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
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(5*time.Second), grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)}
	rlsv3.RegisterRateLimitServiceServer(s.grpc, service)
	return s
}

// Serve returns nil after Shutdown, and otherwise why it ended.
func (s *Server) Serve() error { return s.grpc.Serve(s.listener) }

// Shutdown ends the server. Answers under way are sent, as long as ctx allows.
func (s *Server) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.grpc.GracefulStop()
	return nil
}
