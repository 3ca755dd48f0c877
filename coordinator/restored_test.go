package coordinator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
)

// locked is a condition under the membership's lock.
func (p *membership) locked(is func() bool) func() bool {
	return func() bool { p.mu.Lock(); defer p.mu.Unlock(); return is() }
}

// begins returns how often the history has begun.
func (r *recorder) begins() int { return strings.Count(r.told().log, "reset") }

// TestARestoreIsNoticed: answers to probes that show a restored store restart the history,
// by each of the three checks. All else is the store's own.
func TestARestoreIsNoticed(t *testing.T) {
	for what, alter := range map[string]func(r *etcdserverpb.RangeResponse){
		"another cluster ID":    func(r *etcdserverpb.RangeResponse) { r.Header.ClusterId++ },
		"an earlier revision":   func(r *etcdserverpb.RangeResponse) { r.Header.Revision = 1 },
		"the mark is missing":   func(r *etcdserverpb.RangeResponse) { r.Kvs, r.Count = nil, 0 },
		"the mark is another's": func(r *etcdserverpb.RangeResponse) { r.Kvs[0].CreateRevision-- },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var restored atomic.Bool
			answer := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := call(ctx, method, req, reply, cc, opts...)
				if r, ok := reply.(*etcdserverpb.RangeResponse); ok && err == nil && len(r.Kvs) == 1 && restored.Load() {
					alter(r)
				}
				return err
			}
			client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
				DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(answer)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			f := setupOn(t, client)
			f.set("p", "100/s")
			r, _ := f.subscribe(f.join(Options{TTL: time.Minute}), "p")
			await.Until(t, "more proofs", r.is(func(r *recorder) bool { return r.proofs > 2 }))
			if n := r.begins(); n != 1 {
				t.Fatalf("%d beginnings, and nothing was restored", n)
			}
			restored.Store(true)
			await.Until(t, "the history restarts", func() bool { return r.begins() > 1 })
			restored.Store(false)
			await.Until(t, "it is proved", r.is(proved))
		})
	}
}

// TestAWatchOfAnotherClusterIsNoticed: its events are not taken.
func TestAWatchOfAnotherClusterIsNoticed(t *testing.T) {
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{TTL: time.Minute}), "p")
	await.Until(t, "a proof", r.is(proved))
	p := f.only(r)
	p.mu.Lock()
	h := &etcdserverpb.ResponseHeader{Revision: p.line.Position(), ClusterId: p.line.Cluster() + 1}
	p.mu.Unlock()
	if err := p.line.take(t.Context(), &clientv3.WatchResponse{Header: h}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the history restarts", func() bool { return r.begins() == 2 })
}

// TestADeletedMarkIsNoRestore: the watch tells that the key was deleted, so only that
// provider's instance registers again.
func TestADeletedMarkIsNoRestore(t *testing.T) {
	f := setup(t)
	s := f.join(Options{TTL: time.Minute})
	f.set("p", "100/s")
	f.set("q", "100/s")
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	newest, _ := f.subscribe(s, "q")
	await.Until(t, "a proof", newest.is(proved))
	if err := f.write(clientv3.OpDelete(f.only(newest).current().key)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it registers again", func() bool { return newest.begins() == 2 })
	before := r.told().proofs
	await.Until(t, "the other is proved again", r.is(func(r *recorder) bool { return r.proofs > before+2 }))
	if n := r.begins(); n != 1 {
		t.Errorf("%d beginnings", n)
	}
}

// TestAStoreThatWasPutBackAndHasGoneOn: etcd is restored from a backup from before this
// instance registered, with the same cluster ID, and goes on past every known revision.
func TestAStoreThatWasPutBackAndHasGoneOn(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	cluster, client := etcdtest.New(t, etcdtest.Options{Dir: dir, Processes: false})
	f := setupOn(t, client)
	f.set("p", "100/s")
	s := f.join(Options{Name: "a", TTL: time.Minute})
	restart := func(between func() error) {
		t.Helper()
		cluster.Stop(0)
		if err := between(); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Restart(0); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "etcd answers", func() bool { _, err := client.Get(t.Context(), "others"); return err == nil })
	}
	restart(func() error { return os.CopyFS(backup, os.DirFS(dir)) })
	r, _ := f.subscribe(s, "p")
	p := f.only(r)
	await.Until(t, "a proof", r.is(proved))
	p.mu.Lock() // nothing is taken from etcd meanwhile
	known := p.line.Position()
	restart(func() error {
		if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(dir, "m0"), os.DirFS(filepath.Join(backup, "m0")))
	})
	for i := 0; f.revision() <= known; i++ {
		f.set("p", fmt.Sprintf("%d/s", 50+i))
	}
	p.mu.Unlock()
	await.Until(t, "the history begins again", func() bool { return r.begins() > 1 })
	await.Until(t, "it is proved", r.is(proved))
}
