package dashboard

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// While nobody looks, providers are remembered and nobody is asked to report more often. An
// outage is noted, and takes nothing away.
func TestItRemembersWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true})
	quiet := slog.New(slog.DiscardHandler)
	operator, err := admin.New(client, admin.Options{Author: "test", Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Put(t.Context(), "p", quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Outage: quota.OutageStop}); err != nil {
		t.Fatal(err)
	}
	s, err := coordinator.Join(t.Context(), client, coordinator.Options{Name: "a", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := consumer.Open(t.Context(), s, "p", consumer.Options{Logger: quiet})
	if err == nil {
		err = l.Ready(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(operator, quiet)
	f.resting = true
	f.look(t.Context(), nil)
	p := f.watcher.Seen("p")
	if !f.etcd.OK || p == nil {
		t.Fatalf("%+v, and of the provider %v", f.etcd, p)
	}
	seen := p.At
	f.look(t.Context(), nil)
	if p := f.watcher.Seen("p"); !p.At.Equal(seen) {
		t.Errorf("it was read twice within %v", p.At.Sub(seen))
	}
	keys, err := client.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	if len(keys.Kvs) < 3 {
		t.Errorf("only %d keys were read", len(keys.Kvs))
	}
	for _, kv := range keys.Kvs {
		if strings.Contains(string(kv.Key), "observer") {
			t.Errorf("there is %s", kv.Key)
		}
	}
	cluster.Stop(0)
	for f.etcd.OK {
		f.look(t.Context(), nil)
	}
	shown := &topic{changed: make(chan struct{})}
	f.look(t.Context(), map[string]*topic{"p": shown})
	if d := shown.state.Detail; len(shown.state.Providers) != 1 || d == nil || d.Outage == "" || d.Policy == nil {
		t.Errorf("with etcd away there is %+v", shown.state)
	}
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	for !f.etcd.OK {
		f.look(t.Context(), nil)
	}
	var kinds []string
	for _, e := range f.watcher.Seen("p").Events {
		if e.Kind == "Outage" && e.Until == 0 {
			t.Error("the outage has no end")
		}
		kinds = append(kinds, e.Kind)
	}
	if n := len(kinds); n < 2 || kinds[n-2] != "Outage" || kinds[n-1] != "Back" {
		t.Errorf("events: %v", kinds)
	}
}
