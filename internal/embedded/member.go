package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type memberConfig struct {
	Name, Dir, State, Cluster string
	Peer, Client, Metrics     url.URL
	Slow, Fsync, Gateway      bool
	Retention                 time.Duration
	TLS                       *TLS
}

// timers returns the time between heartbeats and the least time to an election,
// in milliseconds.
func (m memberConfig) timers() (tick, election uint) {
	switch several := strings.Contains(m.Cluster, ","); {
	case m.Slow:
		return 100, 1000
	case several: // faster elections are lost on busy machines
		return 50, 500
	default:
		return 10, 100
	}
}

// health is the URL of what says that the member serves, also to those without a
// certificate.
func (m memberConfig) health() string { return m.Metrics.String() + "/health" }

// server is a member in this process.
type server struct {
	*embed.Etcd
	endStreams context.CancelFunc
	once       sync.Once
	closed     chan struct{} // when it has ended
}

// stop ends the clients' streams first, as a connection that breaks would: etcd itself
// waits for them, for five seconds and more.
func (s *server) stop() {
	s.endStreams()
	<-s.terminate()
}

func (s *server) terminate() <-chan struct{} {
	s.once.Do(func() {
		go func() {
			s.Close()
			close(s.closed)
		}()
	})
	return s.closed
}

func (s *server) ready() error {
	select {
	case <-s.Server.ReadyNotify():
		return nil
	case err := <-s.Err():
		return fmt.Errorf("member %s: %w", s.Config().Name, err)
	case <-time.After(startTimeout):
		return fmt.Errorf("member %s is not ready after %v", s.Config().Name, startTimeout)
	}
}

// untilDone makes every stream of a client end with ctx.
func untilDone(ctx context.Context) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		c, cancel := context.WithCancel(s.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := handle(srv, stream{s, c})
		if ctx.Err() != nil {
			return status.Error(codes.Unavailable, "the member stops") // a client tries again after that
		}
		return err
	})
}

// stream is a stream with another context.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func (m memberConfig) start() (*server, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = m.Name, m.Dir
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{m.Peer}, []url.URL{m.Peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{m.Client}, []url.URL{m.Client}
	cfg.ListenMetricsUrls = []url.URL{m.Metrics}
	cfg.ClusterState, cfg.InitialCluster = m.State, m.Cluster
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.EnableGRPCGateway = m.Gateway // its JSON answers any web page that the machine's browsers show
	cfg.UnsafeNoFsync = !m.Fsync
	cfg.BcryptCost = 4 // the least: no password here is worth more, and logging in is quick
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", m.Retention.String()
	cfg.TickMs, cfg.ElectionMs = m.timers()
	if m.TLS != nil {
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: m.TLS.Cert, KeyFile: m.TLS.Key, TrustedCAFile: m.TLS.CA, ClientCertAuth: true}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{untilDone(ctx)}
	// A listener that this process has closed, of a search for a port or a member
	// before, lives on in children that are being started. It ends when the child has
	// become its program.
	for deadline := time.Now().Add(bindTimeout); ; <-time.After(10 * time.Millisecond) {
		e, err := embed.StartEtcd(cfg)
		if err == nil {
			return &server{Etcd: e, endStreams: cancel, closed: make(chan struct{})}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			cancel()
			return nil, fmt.Errorf("member %s: %w", m.Name, err)
		}
	}
}

const bindTimeout = 10 * time.Second

// Ports are chosen below those that systems give to outgoing connections (from 32768 on
// with Linux, from 49152 on elsewhere). One of those may become the near end of
// somebody's connection at any moment, and then nobody can listen on it.
const (
	lowestPort  = 10000
	highestPort = 32000
)

// FreeAddresses returns n loopback addresses, chosen at random, on which nobody
// listens. For servers that must be told their port; whoever can listen on port
// 0 should.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort)))
		switch {
		case err == nil:
			defer l.Close() //nolint:revive // not before all are found
			addresses = append(addresses, l.Addr().String())
		case tries >= 100+n:
			return nil, fmt.Errorf("no free port between %d and %d: %w", lowestPort, highestPort, err)
		}
	}
	return addresses, nil
}
