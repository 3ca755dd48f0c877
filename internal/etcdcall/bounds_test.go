package etcdcall

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// TestALargeAnswerIsRefusedUnread: by the real client, before it is in memory.
func TestALargeAnswerIsRefusedUnread(t *testing.T) {
	_, client := etcdtest.New(t, embedded.Options{})
	kv := NewKV(client, time.Minute)
	for i := range 10 {
		if _, err := client.Put(t.Context(), fmt.Sprint("/", i), strings.Repeat("x", 1400<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kv.Get(t.Context(), "/", clientv3.WithPrefix()); !TooLarge(err) {
		t.Errorf("14 MB were read: %v", err)
	}
	read := func(limit int64) []clientv3.OpOption {
		return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(limit)}
	}
	if _, err := kv.Get(t.Context(), "/", read(3)...); !TooLarge(err) {
		t.Errorf("a page of 4.2 MB was read: %v", err)
	}
	if _, err := kv.Txn(t.Context()).Then(clientv3.OpGet("/", read(3)...)).Commit(); !TooLarge(err) {
		t.Errorf("a page of 4.2 MB was read by a transaction: %v", err)
	}
	if r, err := kv.Get(t.Context(), "/", read(2)...); err != nil || len(r.Kvs) != 2 {
		t.Errorf("2.8 MB were not read: %v", err)
	}
}

// TestPagesShrinkWhereValuesAreLarge: every key comes once and in order, and no
// page is beyond the bound. Few are refused: only where values become large.
func TestPagesShrinkWhereValuesAreLarge(t *testing.T) {
	const keys, bound = 1000, 12 << 20
	size := func(i int) int {
		if i%400 > 200 {
			return 3 << 20
		}
		return 100
	}
	asked, refused, got, large := 0, 0, 0, make([]byte, 3<<20)
	err := EachKey("0", func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		asked++
		op := clientv3.OpGet(from, o...)
		var first int
		if _, err := fmt.Sscanf(strings.TrimRight(from, "\x00"), "%d", &first); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(from, "\x00") {
			first++
		}
		r, bytes := &pb.RangeResponse{}, 0
		for i := first; i < keys; i++ {
			if int64(len(r.Kvs)) == op.Limit() {
				r.More = true
				break
			}
			bytes += size(i)
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%04d", i), Value: large[:size(i)]})
		}
		if bytes > bound {
			refused++
			return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max (1 vs. 0)")
		}
		return r, nil
	}, nil, func(kv *mvccpb.KeyValue) {
		if string(kv.Key) != fmt.Sprintf("%04d", got) {
			t.Fatalf("key %s, want %04d", kv.Key, got)
		}
		got++
	})
	if err != nil || got != keys || asked > keys || refused > 9 {
		t.Errorf("%d keys by %d pages, %d refused, %v", got, asked, refused, err)
	}
}
