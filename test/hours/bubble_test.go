package hours_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quotient-limiter/quotient/quota"
)

// valCtxCh is a channel that etcd's client waits on and makes when the program
// starts. It must belong to the bubble, or time stands still in there while a
// watch is open. So only one bubble may run at a time in this package.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// network is an etcd server in a bubble, and the way to it.
type network struct {
	t      *testing.T
	dir    string
	server *etcdserver.EtcdServer
	stop   func()
	cut    atomic.Bool // no new connections

	mu       sync.Mutex
	listener *bufconn.Listener
	conns    []net.Conn
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	if n.cut.Load() {
		return nil, errors.New("no route to host")
	}
	n.mu.Lock()
	listener := n.listener
	n.mu.Unlock()
	c, err := listener.DialContext(ctx)
	if err == nil {
		n.mu.Lock()
		n.conns = append(n.conns, c)
		n.mu.Unlock()
	}
	return c, err
}

// pass lets the bubble's time go on.
func pass(d time.Duration) { time.Sleep(d) }

// breakOff ends all connections, and lets none come up for a while.
func (n *network) breakOff(d time.Duration) {
	n.cut.Store(true)
	n.mu.Lock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
	n.mu.Unlock()
	time.Sleep(d)
	n.cut.Store(false)
}

// connect returns a new client of the server, over gRPC.
func (n *network) connect(t *testing.T) *clientv3.Client {
	t.Helper()
	return n.connectBy(t, n.dial)
}

func (n *network) connectBy(t *testing.T, dial func(context.Context, string) (net.Conn, error)) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://passthrough"}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// bubble runs f in a bubble of fake time with an etcd server of one member.
// connect returns a new client of it.
func bubble(t *testing.T, f func(t *testing.T, connect func() *clientv3.Client)) {
	t.Helper()
	inBubble(t, func(t *testing.T, n *network) {
		f(t, func() *clientv3.Client { return n.connect(t) })
	})
}

func inBubble(t *testing.T, f func(t *testing.T, n *network)) {
	t.Helper()
	old := valCtxCh
	defer func() { valCtxCh = old }()
	synctest.Test(t, func(t *testing.T) {
		valCtxCh = make(chan struct{})
		n := &network{t: t, dir: filepath.Join(t.TempDir(), "etcd")}
		n.start()
		t.Cleanup(func() { n.stop() }) // after what the test cleans up itself
		f(t, n)
	})
}

func (n *network) start() {
	n.t.Helper()
	n.server = startServer(n.t, n.dir)
	// Clients ping every ten seconds at most.
	rpc := v3rpc.Server(n.server, nil, nil, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: true,
	}))
	listener, served := bufconn.Listen(1<<20), make(chan struct{})
	go func() {
		_ = rpc.Serve(listener) // ends in Stop
		close(served)
	}()
	n.stop = func() {
		rpc.Stop()
		<-served
		n.server.Stop()
	}
	n.mu.Lock()
	n.listener = listener
	n.mu.Unlock()
}

// restart stops the server, and starts it again after f, which is given its folder.
func (n *network) restart(f func(dir string) error) {
	n.t.Helper()
	n.stop()
	if err := f(n.dir); err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

func startServer(t *testing.T, dir string) *etcdserver.EtcdServer {
	t.Helper()
	peers, err := types.NewURLs([]string{"http://127.0.0.1:1"}) // nobody listens: there is one member
	if err != nil {
		t.Fatal(err)
	}
	server, err := etcdserver.NewServer(config.ServerConfig{
		Name: "m", DataDir: dir, ClientURLs: peers, PeerURLs: peers,
		InitialPeerURLsMap: types.URLsMap{"m": peers}, InitialClusterToken: "t", NewCluster: true,
		TickMs: 100, ElectionTicks: 10, InitialElectionTickAdvance: true, BootstrapTimeout: time.Second,
		SnapshotCount: 10_000, SnapshotCatchUpEntries: 5_000, MaxWALFiles: 5,
		AutoCompactionMode: "periodic", AutoCompactionRetention: 5 * time.Minute,
		MaxTxnOps: 128, MaxRequestBytes: 1 << 20, MaxConcurrentStreams: math.MaxUint32, AuthToken: "simple",
		UnsafeNoFsync: true, Logger: zap.NewNop(), Metrics: "basic",
		ServerFeatureGate: features.NewDefaultServerFeatureGate("m", zap.NewNop()),
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	<-server.ReadyNotify()
	return server
}

func permits(n int64) quota.Policy {
	return quota.Policy{Limits: []quota.Limit{{Permits: n, Window: time.Second}}}
}

const (
	prefix   = "/longrun/"
	provider = "p"
)

var quiet = slog.New(slog.DiscardHandler)
