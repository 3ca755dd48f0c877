package coordinator

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// An etcd that is full answers reads and keeps leases alive, so instances keep their shares. That
// it refuses writes is a problem of theirs, and a line in the log, once; both end with it. What a
// full etcd takes, a deletion and a read, ends neither.
func TestAnEtcdThatRefusesWritesIsAProblem(t *testing.T) {
	cluster, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client := etcdtest.NewClient(t, cluster)
	f := setupOn(t, client)
	f.set("p", "10/s")
	var log bytes.Buffer // its handler locks it
	s := f.join(Options{Name: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(func(r *recorder) bool { return r.proofs > 0 }))

	full := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		members, err := client.MemberList(t.Context())
		if err == nil {
			_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
				&pb.AlarmRequest{Action: action, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_NOSPACE})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put := clientv3.OpPut(f.prefix+"x", "")
	write := func(op clientv3.Op) error {
		_, err := s.kv.Txn(t.Context()).If(etcdcall.At("none", 0)).Then(op).Commit()
		return err
	}
	full(pb.AlarmRequest_ACTIVATE)
	for range 3 {
		if err := write(put); err == nil || errors.Is(err, ErrUnreachable) {
			t.Fatalf("a full etcd answered %v", err)
		}
		_, _ = s.kv.Delete(t.Context(), f.prefix+"x")
		_, _ = s.kv.Txn(t.Context()).Then(clientv3.OpGet(f.prefix + "x")).Commit()
		s.lookAtWrites()
	}
	await.Until(t, "the problem", r.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "etcd refuses writes (etcdserver: mvcc: database space exceeded)")
	}))
	proofs := r.told().proofs
	await.Until(t, "proofs, as before", r.is(func(r *recorder) bool { return r.proofs > proofs+3 }))
	full(pb.AlarmRequest_DEACTIVATE)
	// A put of a transaction within another one is a write too. It is not among those above, since a full etcd 3.5 takes it.
	if err := write(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the end of the problem", func() bool {
		s.lookAtWrites()
		return r.is(func(r *recorder) bool { return r.trouble == nil })()
	})
	_ = s.Close() // nobody writes to the log any more
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || strings.Count(text, "of=writes") != 2 {
		t.Errorf("want the problem and its end in the log, once each:\n%s", text)
	}
}
