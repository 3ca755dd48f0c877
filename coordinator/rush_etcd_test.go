package coordinator

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// TestNothingOfARushIsSkipped: in a large fleet many changes close the watch for a
// little, and what comes meanwhile is taken all the same, revision by revision.
func TestNothingOfARushIsSkipped(t *testing.T) {
	f := setup(t)
	f.set("p", "1000/s")
	there := 0
	join := func(n int) (ops []clientv3.Op) {
		for range n {
			key := fmt.Sprintf("%sproviders/p/instances/other.%d", f.prefix, there)
			ops = append(ops, clientv3.OpPut(key, `{"schema":1,"name":"other"}`))
			there++
		}
		return ops
	}
	commit := func(ops ...clientv3.Op) {
		t.Helper()
		if _, err := f.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	commit(clientv3.OpDelete(f.prefix+"providers/p/instances/", clientv3.WithPrefix())) // of a run before
	commit(join(session.ManyInstances)...)
	r, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	await.Until(t, "the view is proved", r.is(proved))
	p := f.only(r)
	open := func() bool {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		w := p.s.onlyWatch()
		return w.open != nil && w.open.ctx.Err() == nil
	}
	await.Until(t, "the watch is open", open)
	await.Until(t, "a rush closes the watch", func() bool {
		if !open() {
			return true
		}
		commit(join(session.RushChanges + 1)...)
		return false
	})
	const more = 30
	for range more {
		commit(join(1)...)
	}
	await.Until(t, "all are seen", r.is(func(r *recorder) bool { return len(r.view.Instances) == 1+there }))
	told := r.told()
	if got := strings.Count(told.log, "put"); got != there-session.ManyInstances || strings.Contains(told.log, "after") || strings.Count(told.log, "reset") != 1 {
		t.Errorf("%d joins were seen, want %d: %s", got, there-session.ManyInstances, told.log)
	}
	await.Until(t, "the view is proved again", r.is(func(r *recorder) bool { return r.proofs > told.proofs }))
}
