package coordinator

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/quota"
)

// loanOf is one of so many permits in the running second.
func loanOf(permits int64) protocol.Loan {
	return protocol.Loan{Windows: []quota.Window{quota.WindowAt(time.Second, time.Now().UnixNano())}, Permits: permits}
}

func TestALoanReachesItsGuestAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: time.Minute}}
	if _, err := f.admin.Put(t.Context(), "p", policy); err != nil {
		t.Fatal(err)
	}
	host, _ := f.subscribe(f.join(Options{Name: "host"}), "p")
	await.Until(t, "the host is there", host.is(proved))
	guest, _ := f.subscribe(f.join(Options{Name: "guest"}), "p")
	other, _ := f.subscribe(f.join(Options{Name: "other"}), "p")
	await.Until(t, "all are there", func() bool { return host.is(members(3))() && guest.is(proved)() && other.is(proved)() })
	host.mu.Lock()
	lend, instances := host.lent, host.view.Instances
	host.mu.Unlock()
	for _, i := range instances {
		if !i.Borrows {
			t.Errorf("%+v: a newcomer borrows", i)
		}
	}
	from, to := host.told().self, guest.told().self
	// A message takes its time, and one that is late for its window is not sent at all.
	arrives := func(permits int64) func() bool {
		return func() bool {
			lend(to, loanOf(permits))
			return guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, permits}) })()
		}
	}
	await.Until(t, "a loan arrives", arrives(1))
	// Garbage is not borrowed, and a key that names no host is not either.
	folder := f.admin.keys.Loans("p", to)
	put := func(key, value string) {
		if err := f.write(clientv3.OpPut(folder+key, value)); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := json.Marshal(loanOf(5))
	put("%zz", string(text))
	put(from, "{")
	await.Until(t, "another arrives", arrives(6))
	for _, l := range guest.borrowed {
		if l != (loaned{from, 1}) && l != (loaned{from, 6}) {
			t.Errorf("borrowed %+v", l)
		}
	}
	if other.is(func(r *recorder) bool { return r.borrowed != nil })() {
		t.Errorf("another was lent %+v", other.borrowed)
	}
	r, err := f.client.Get(t.Context(), folder+from)
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease == 0 {
		t.Errorf("%v, %v: what is lent must not stay for ever", r, err)
	}
}
