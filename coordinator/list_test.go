package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// paged is an etcd of which before is called with every page that is asked for, by
// number: the page is lost if it returns an error.
type paged struct {
	clientv3.KV
	pages  int
	before func(page int) error
}

type pagedTxn struct {
	clientv3.Txn
	of   *paged
	page bool
}

func (d *paged) Txn(ctx context.Context) clientv3.Txn { return &pagedTxn{Txn: d.KV.Txn(ctx), of: d} }

func (x *pagedTxn) If(c ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(c...); return x }

func (x *pagedTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *pagedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.page = len(ops) == 1 && ops[0].IsGet() && !ops[0].IsCountOnly()
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *pagedTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.page {
		x.of.pages++
		if err := x.of.before(x.of.pages); err != nil {
			return nil, err
		}
	}
	return x.Txn.Commit()
}

// TestAListingIsOfOneRevision: it is read in pages, of which some are lost, and
// others join and leave and compact meanwhile. Not parallel to the others: to compact
// the store that they share is a gap for a watch that is opened anew.
func TestAListingIsOfOneRevision(t *testing.T) {
	const others = 2*etcdcall.PageKeys + 20
	lost := errors.New("the page is lost")
	for name, c := range map[string]struct {
		meanwhile func(f *fixture, page int) error
		pages     int
		listed    int // instances, itself too
	}{
		"nothing happens": {func(*fixture, int) error { return nil }, 3, others + 1},
		"pages are lost": {func(_ *fixture, page int) error {
			if page%2 == 0 {
				return lost
			}
			return nil
		}, 5, others + 1}, // the 1st, 3rd and 5th
		"others come and go": {func(f *fixture, page int) error {
			return errors.Join(
				f.write(clientv3.OpPut(f.keys.Instance("p", fmt.Sprint("b", page)), `{"schema":1,"name":"b"}`)),
				f.write(clientv3.OpDelete(f.keys.Instance("p", fmt.Sprintf("a%04d", others-page)))))
		}, 3, others + 1},
		"it is compacted": {func(f *fixture, page int) error {
			if page != 2 {
				return nil
			}
			at := f.write(clientv3.OpDelete(f.keys.Instance("p", "a0000")))
			_, err := f.client.Compact(f.t.Context(), f.revision())
			return errors.Join(at, err)
		}, 5, others}, // the 2nd in vain, and then all again, as of the present
	} {
		t.Run(name, func(t *testing.T) {
			client := etcdtest.NewClient(t, server)
			f := setupOn(t, client)
			f.set("p", "10/s")
			var puts []clientv3.Op
			for i := range others {
				puts = append(puts, clientv3.OpPut(f.keys.Instance("p", fmt.Sprintf("a%04d", i)), `{"schema":1,"name":"a"}`))
			}
			for some := range slices.Chunk(puts, 100) {
				if err := f.write(clientv3.OpTxn(nil, some, nil)); err != nil {
					t.Fatal(err)
				}
			}
			store := &paged{KV: etcdcall.NewKV(client, etcdcall.Timeout), before: func(page int) error { return c.meanwhile(f, page) }}
			f.kv = store
			r, leave := f.subscribe(f.join(Options{TTL: time.Minute}), "p")
			await.Until(t, "a proof", r.is(proved))
			log := r.told().log
			if want := fmt.Sprintf("reset %d", c.listed); !strings.HasPrefix(log, want) || strings.Count(log, "reset") != 1 {
				t.Errorf("was told %.40q, want %q", log, want)
			}
			if store.pages != c.pages {
				t.Errorf("%d pages, want %d", store.pages, c.pages)
			}
			got, err := client.Get(t.Context(), f.keys.Instances("p"), clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the events after it", r.is(members(int(got.Count))))
			if err := leave(); err != nil {
				t.Error(err)
			}
		})
	}
}

// write does one thing to etcd.
func (f *fixture) write(op clientv3.Op) error {
	_, err := f.client.Do(f.t.Context(), op)
	return err
}

func (f *fixture) revision() int64 {
	r, err := f.client.Get(f.t.Context(), "/")
	if err != nil {
		f.t.Error(err)
		return 0
	}
	return r.Header.Revision
}
