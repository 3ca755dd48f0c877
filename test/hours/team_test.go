package hours_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// team is instances that live for hours.
type team struct {
	*network
	t        *testing.T
	client   *clientv3.Client
	limiters []*consumer.Limiter
}

// inTeam runs f with n instances of a provider with a limit of 100/s.
func inTeam(t *testing.T, n int, f func(f *team)) {
	t.Helper()
	inBubble(t, func(t *testing.T, net *network) {
		f1 := &team{network: net, t: t, client: net.connect(t)}
		operator, err := admin.New(f1.client, admin.Options{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Put(t.Context(), provider, permits(100)); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s, err := coordinator.Join(t.Context(), f1.client, coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("w%d", i), Logger: quiet, Probe: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			l, err := consumer.Open(t.Context(), s, provider, consumer.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			f1.limiters = append(f1.limiters, l)
		}
		time.Sleep(10 * time.Second)
		f(f1)
	})
}

// agree checks that every instance knows all of them, has a proof younger than
// the freshness, and that their shares are the total.
func (f *team) agree(total int64) {
	f.t.Helper()
	synctest.Wait()
	sum := int64(0)
	for i, l := range f.limiters {
		st := l.Status()
		sum += st.Shortest().Share
		if st.State != quota.StateActive || st.Instances != len(f.limiters) {
			f.t.Errorf("instance %d is %s and knows %d instances: %s", i, st.State, st.Instances, st.Problem)
		}
		if st.ProofAge < 0 || st.ProofAge > quota.DefaultFreshness {
			f.t.Errorf("instance %d: the proof is %v old", i, st.ProofAge)
		}
	}
	if sum != total {
		f.t.Errorf("the shares sum to %d, the limit is %d", sum, total)
	}
}

// loseLease revokes an instance's lease, and waits until it is back as another
// incarnation.
func (f *team) loseLease(i int) {
	f.t.Helper()
	was := f.limiters[i].Status().Incarnation
	r, err := f.client.Get(f.t.Context(), prefix+"providers/"+provider+"/instances/", clientv3.WithPrefix())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		if strings.HasSuffix(string(kv.Key), was) {
			if _, err := f.client.Revoke(f.t.Context(), clientv3.LeaseID(kv.Lease)); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	time.Sleep(20 * time.Second)
	if now := f.limiters[i].Status().Incarnation; now == was {
		f.t.Errorf("instance %d is %s still, without a lease", i, was)
	}
}
