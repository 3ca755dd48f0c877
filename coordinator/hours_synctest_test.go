package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// These tests run many sessions against a real etcd server in fake time: hours
// pass in seconds, and exactly as often as they are asked for. Everything is in
// this process: sockets and other processes know no fake time.

// valCtxCh is a channel that etcd's client makes once per process for the
// contexts of its watches. One made outside of the test's bubble would keep fake
// time from passing.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// fakeEtcd is an etcd server of one member in a bubble, and the network to it.
type fakeEtcd struct {
	server   *etcdserver.EtcdServer
	rpc      *grpc.Server
	listener *bufconn.Listener
	cut      atomic.Bool // no new connections
	conns    atomic.Pointer[[]net.Conn]
}

func startFakeEtcd(t *testing.T) *fakeEtcd {
	t.Helper()
	valCtxCh = make(chan struct{})
	urls := types.MustNewURLs([]string{"http://127.0.0.1:1"}) // nobody listens
	s, err := etcdserver.NewServer(config.ServerConfig{
		Name: "m0", DataDir: t.TempDir(), Logger: zap.NewNop(), ClientURLs: urls, PeerURLs: urls,
		InitialPeerURLsMap: types.URLsMap{"m0": urls}, InitialClusterToken: "t", NewCluster: true,
		TickMs: 500, ElectionTicks: 4, SnapshotCount: 10_000, SnapshotCatchUpEntries: 5000, UnsafeNoFsync: true,
		MaxTxnOps: 128, MaxRequestBytes: 1 << 20, MaxConcurrentStreams: 1 << 20, AuthToken: "simple", TokenTTL: 300,
		BackendBatchInterval: time.Second, ServerFeatureGate: features.NewDefaultServerFeatureGate("m0", zap.NewNop()), WarningApplyDuration: time.Minute, WarningUnaryRequestDuration: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	e := &fakeEtcd{server: s, rpc: v3rpc.Server(s, nil, nil), listener: bufconn.Listen(1 << 20)}
	e.conns.Store(&[]net.Conn{})
	go func() { _ = e.rpc.Serve(e.listener) }()
	<-s.ReadyNotify()
	return e
}

func (e *fakeEtcd) close() {
	e.rpc.Stop()
	e.server.Stop()
}

func (e *fakeEtcd) client(t *testing.T) *clientv3.Client {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		if e.cut.Load() {
			return nil, fmt.Errorf("no route to host")
		}
		c, err := e.listener.DialContext(ctx)
		if err == nil {
			all := append(slices.Clone(*e.conns.Load()), c)
			e.conns.Store(&all)
		}
		return c, err
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://passthrough"}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// breakOff ends all connections, and lets none come up for a while.
func (e *fakeEtcd) breakOff(d time.Duration) {
	e.cut.Store(true)
	for _, c := range *e.conns.Swap(&[]net.Conn{}) {
		_ = c.Close()
	}
	time.Sleep(d)
	e.cut.Store(false)
}

// fakeFleet is sessions that serve one provider.
type fakeFleet struct {
	etcd     *fakeEtcd
	client   *clientv3.Client
	sessions []*Session
	sinks    []*recorder
}

func startFakeFleet(t *testing.T, n int) *fakeFleet {
	t.Helper()
	e := startFakeEtcd(t)
	f := &fakeFleet{etcd: e, client: e.client(t)}
	a, err := NewAdmin(f.client, AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Put(t.Context(), "p", policyOfPermits(100), AnyRevision); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s, err := Join(t.Context(), f.client, Options{Name: fmt.Sprintf("w%d", i), Logger: quiet, Probe: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		if _, err := s.Subscribe("p", func() feed.Sink { return r }); err != nil {
			t.Fatal(err)
		}
		f.sessions, f.sinks = append(f.sessions, s), append(f.sinks, r)
	}
	time.Sleep(5 * time.Second)
	return f
}

func (f *fakeFleet) close(t *testing.T) {
	t.Helper()
	for _, s := range f.sessions {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.client.Close(); err != nil {
		t.Error(err)
	}
	f.etcd.close()
}

func policyOfPermits(n int64) quota.Policy {
	return quota.Policy{Limits: []quota.Limit{{Permits: n, Window: time.Second}}}
}

// agree checks that every instance holds the same view of n instances, itself
// among them, and has a proof younger than the freshness.
func (f *fakeFleet) agree(t *testing.T, n int) {
	t.Helper()
	for i, r := range f.sinks {
		now := f.sessions[i].Clock().Now()
		r.mu.Lock()
		has := slices.ContainsFunc(r.view.Instances, func(o quota.Instance) bool { return o.ID == r.self })
		if len(r.view.Instances) != n || !has || r.view.Policy == nil {
			t.Errorf("instance %d holds %d instances, itself: %v, policy: %v", i, len(r.view.Instances), has, r.view.Policy != nil)
		}
		if age := time.Duration(now.Mono - r.proof.Mono); age > quota.DefaultFreshness {
			t.Errorf("instance %d: the proof is %v old", i, age)
		}
		r.mu.Unlock()
	}
}

// TestHoursOfKeepalives: leases, probes and watches of a fleet for two hours.
// Nobody registers anew, and proofs come all the time.
func TestHoursOfKeepalives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		f := startFakeFleet(t, n)
		f.agree(t, n)
		before := make([]told, n)
		for i, r := range f.sinks {
			before[i] = r.told()
		}
		for range 2 * 6 {
			time.Sleep(10 * time.Minute)
			f.agree(t, n)
		}
		for i, r := range f.sinks {
			now := r.told()
			if now.self != before[i].self {
				t.Errorf("instance %d became %s, it was %s", i, now.self, before[i].self)
			}
			// Once a second, or somewhat more often where the freshness wants it.
			if proofs := now.proofs - before[i].proofs; proofs < 2*60*60 {
				t.Errorf("instance %d was proved %d times in two hours", i, proofs)
			}
		}
		f.close(t)
	})
}

// TestHoursOfTrouble: again and again leases are revoked under living
// instances, connections break, revisions are compacted away while they are
// broken, and the policy changes. After each the fleet agrees, and a gap has
// started histories anew.
func TestHoursOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		f := startFakeFleet(t, n)
		a, err := NewAdmin(f.client, AdminOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			f.loseLease(t, round%n)
			f.agree(t, n)
			f.compactUnseen(t, a, int64(200+round))
			f.agree(t, n)
			time.Sleep(20 * time.Minute)
			f.agree(t, n)
		}
		f.close(t)
	})
}

// loseLease revokes an instance's lease, and waits until it is back as another
// incarnation.
func (f *fakeFleet) loseLease(t *testing.T, i int) {
	t.Helper()
	was := f.sinks[i].told().self
	s := f.sessions[i]
	s.mu.Lock()
	id := s.mu.lease.id
	s.mu.Unlock()
	if _, err := f.client.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Second)
	if now := f.sinks[i].told().self; now == was {
		t.Errorf("instance %d is %s still, without a lease", i, was)
	}
}

// compactUnseen breaks all connections, changes the policy and compacts it away
// meanwhile, through the server itself, and lets the fleet come back.
func (f *fakeFleet) compactUnseen(t *testing.T, a *Admin, permits int64) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		f.etcd.breakOff(1500 * time.Millisecond)
		close(done)
	}()
	time.Sleep(100 * time.Millisecond)
	f.etcd.writeAndCompact(t, a.keys.policy("p"), permits)
	<-done
	time.Sleep(20 * time.Second)
	for i, r := range f.sinks {
		r.mu.Lock()
		if got := r.view.Policy.Limits[0].Permits; got != permits {
			t.Errorf("instance %d holds a limit of %d, it is %d", i, got, permits)
		}
		r.mu.Unlock()
	}
}

// writeAndCompact writes a policy twice, so that the first is gone after the
// compaction, without a connection.
func (e *fakeEtcd) writeAndCompact(t *testing.T, key string, permits int64) {
	t.Helper()
	for _, n := range []int64{permits + 1000, permits} {
		value, err := json.Marshal(policyOfPermits(n))
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.server.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: value})
		if err != nil {
			t.Fatal(err)
		}
		if n == permits {
			if _, err := e.server.Compact(t.Context(), &pb.CompactionRequest{Revision: r.Header.Revision}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
