package etcdcall

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// A client with the right to write instances, reports or the throttle can write as many
// keys, and values as large, as etcd takes. None of that may fill the memory of others:
// a message is bounded, values are read and dropped page by page, and the kept part of
// a key is bounded too (see also share.MaxHistory).
const (
	// messageBytes bounds one message of etcd's. Its largest value is 1.5 MiB by
	// default, and 10 MiB by its own advice.
	messageBytes = 12 << 20
	// PageKeys is how many keys one read returns at most: usually about 350 kB. etcd
	// counts all keys for every page.
	PageKeys = 1000
	// pageBytes bounds a read of several keys. A message takes three times its size
	// while it is decoded.
	pageBytes = 4 << 20
	// MaxOps is etcd's default for the operations of a transaction.
	MaxOps = 128
	// Timeout bounds a call where nobody says another time.
	Timeout = 5 * time.Second
)

// boundedKV ends each call after a time, and refuses answers beyond messageBytes, or
// pageBytes where there are several keys, before they are read.
type boundedKV struct {
	pb.KVClient
	timeout time.Duration
}

// NewKV returns a client's keys and values. Each call ends after the timeout. An answer beyond its
// bound is refused before it is read: see TooLarge.
func NewKV(client *clientv3.Client, timeout time.Duration) clientv3.KV {
	return clientv3.NewKVFromKVClient(boundedKV{clientv3.RetryKVClient(client), timeout}, client)
}

// NewWatchedKV is NewKV, but a refused login holds calls back, and it tells what etcd answers to each write.
func NewWatchedKV(client *clientv3.Client, timeout time.Duration, logins *Logins, answered func(error)) clientv3.KV {
	return clientv3.NewKVFromKVClient(writes{heldKV{boundedKV{clientv3.RetryKVClient(client), timeout}, logins}, answered}, client)
}

func bounded(o []grpc.CallOption, bytes int) []grpc.CallOption {
	return append(slices.Clip(o), grpc.MaxCallRecvMsgSize(bytes))
}

// bytesOf returns the bound of the answer to a read, nil for none.
func bytesOf(in *pb.RangeRequest) int {
	if in.GetLimit() > 1 && !in.GetKeysOnly() {
		return pageBytes
	}
	return messageBytes
}

// Range implements pb.KVClient.
func (b boundedKV) Range(ctx context.Context, in *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	ctx, done := context.WithTimeout(ctx, b.timeout)
	defer done()
	return b.KVClient.Range(ctx, in, bounded(o, bytesOf(in))...)
}

// Txn implements pb.KVClient.
func (b boundedKV) Txn(ctx context.Context, in *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	ctx, done := context.WithTimeout(ctx, b.timeout)
	defer done()
	bytes := messageBytes
	for _, op := range in.Success {
		bytes = min(bytes, bytesOf(op.GetRequestRange()))
	}
	return b.KVClient.Txn(ctx, in, bounded(o, bytes)...)
}

// TooLarge reports whether an answer was beyond its bound.
func TooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// At is the condition that a key is at a revision.
func At(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// KeyIn returns the key that was read, an empty one if it is not there.
func KeyIn(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return &mvccpb.KeyValue{}
}

// EachIn calls f with the keys of a folder, read with more options.
func EachIn(ctx context.Context, kv clientv3.KV, folder string, f func(*mvccpb.KeyValue), more ...clientv3.OpOption) error {
	return EachKey(folder, func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		r, err := kv.Get(ctx, from, append(o, more...)...)
		return (*pb.RangeResponse)(r), err
	}, nil, f)
}

// EachKey calls f with the keys of a folder, a page at a time. get asks for
// a page. Pages are smaller where values are large; the page before says how large.
// after returns where the page after a key begins; nil stands for right behind it.
func EachKey(folder string, get func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error), after func(key string) string, f func(*mvccpb.KeyValue)) error {
	n, from, end := 0, folder, clientv3.GetPrefixRangeEnd(folder)
	for limit := int64(PageKeys); ; {
		if n > protocol.MaxInstances {
			return protocol.ErrTooMany
		}
		r, err := get(from, clientv3.WithRange(end), clientv3.WithLimit(limit))
		if TooLarge(err) && limit > 1 {
			limit = max(1, limit/8)
			continue
		}
		if err != nil {
			return err
		}
		n += len(r.Kvs)
		size := int64(1)
		for _, kv := range r.Kvs {
			size += int64(len(kv.Key) + len(kv.Value))
			f(kv)
		}
		if !r.More || len(r.Kvs) == 0 {
			return nil
		}
		limit = max(1, min(PageKeys, 2*limit, int64(len(r.Kvs))*pageBytes/size))
		last := string(r.Kvs[len(r.Kvs)-1].Key)
		if from = last + "\x00"; after != nil {
			from = after(last)
		}
	}
}

// NewWatchClient returns a client's watches of etcd's own protocol, whose answers are bounded. A refused login holds them
// back.
func NewWatchClient(client *clientv3.Client, logins *Logins) pb.WatchClient {
	return boundedWatch{pb.NewWatchClient(client.ActiveConnection()), logins}
}

// NewWatcher returns a client's watcher, whose answers are bounded likewise.
func NewWatcher(client *clientv3.Client, logins *Logins) clientv3.Watcher {
	return clientv3.NewWatchFromWatchClient(NewWatchClient(client, logins), client)
}

// boundedWatch refuses answers beyond messageBytes. It does not ask for them in parts:
// etcd measures each part anew for every event that it adds, so that many small
// events would keep it busy for minutes. A history that is told too much at once
// begins anew, from a listing.
type boundedWatch struct {
	pb.WatchClient
	logins *Logins
}

// Watch implements pb.WatchClient. It waits for a connection: whoever tries again later may come
// seconds after etcd is back.
func (b boundedWatch) Watch(ctx context.Context, o ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	return HeldStream(b.logins, func() (pb.Watch_WatchClient, error) {
		return b.WatchClient.Watch(ctx, append(bounded(o, messageBytes), grpc.WaitForReady(true))...)
	})
}
