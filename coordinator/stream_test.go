package coordinator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
)

// TestANewcomerMissesNothing: its watch was opened before it registered. It is told each
// change that its listing lacks, also if the watch begins only after some of them, as
// when a store was put back in between.
func TestANewcomerMissesNothing(t *testing.T) {
	for name, beyond := range map[string]int64{"opened before": 0, "begun after the listing": 20} {
		t.Run(name, func(t *testing.T) {
			f := setupOn(t, etcdtest.NewClient(t, server))
			f.set("p", "1000/s")
			registers := make(chan *membership, 1)
			f.kv = &crowded{KV: newKV(f.client, defaultTimeout), join: func() {
				p := <-registers // this goroutine's own: it registers
				f.set("p", "2000/s")
				if p.early.view == nil {
					t.Error("no watch was opened before")
				} else if from := p.early.view.from; beyond > 0 {
					p.early.close()
					p.early.view = p.newStream(p.ctx, from+beyond)
					p.early.view.open(p.s.keys.Provider("p"))
				}
			}}
			r, _ := f.subscribe(f.join(Options{}), "p")
			registers <- f.only(r)
			await.Until(t, "a listing", r.is(func(r *recorder) bool { return len(r.log) > 0 }))
			var want []int64
			for i := range 3 * beyond {
				want = append(want, 3000+i)
				f.set("p", fmt.Sprintf("%d/s", 3000+i))
			}
			want = append(want, 9000)
			f.set("p", "9000/s")
			await.Until(t, "the last change", r.is(func(r *recorder) bool { return r.view.Policy.Limits[0].Permits == 9000 }))
			if r.mu.Lock(); !slices.Equal(r.totals, want) {
				t.Errorf("was told of %v, want %v", r.totals, want)
			}
			r.mu.Unlock()
		})
	}
}

// TestAnEndedWatchSaysNothing: events on their way when a watch ends are not taken. They
// may be of a store that has been replaced.
func TestAnEndedWatchSaysNothing(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	r, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", r.is(proved))
	p := f.only(r)
	told := make(chan clientv3.WatchResponse, 1)
	for range 20 { // select is fair
		s := p.newStream(p.ctx, 0)
		s.told = told
		s.end()
		told <- clientv3.WatchResponse{}
		if _, ok := s.next(); ok {
			t.Fatal("an ended watch has an answer")
		}
		for len(told) > 0 {
			<-told
		}
	}
	p.mu.Lock()
	at := p.tracker.Position() + 1
	p.mu.Unlock()
	ended, end := context.WithCancel(p.ctx)
	end()
	late := &mvccpb.KeyValue{Key: []byte(f.admin.keys.Policy("p")), ModRevision: at, CreateRevision: at}
	if err := p.take(ended, &clientv3.WatchResponse{Events: []*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: late}}}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.policy == nil {
		t.Error("an ended watch has deleted the policy")
	}
}
