package etcdcall

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// writes tells what etcd has answered to a client's writes. Reads, and what only deletes, say
// nothing: a full etcd takes them.
type writes struct {
	pb.KVClient
	answered func(err error)
}

// Put implements pb.KVClient.
func (w writes) Put(ctx context.Context, in *pb.PutRequest, o ...grpc.CallOption) (*pb.PutResponse, error) {
	r, err := w.KVClient.Put(ctx, in, o...)
	w.answered(err)
	return r, err
}

// Txn implements pb.KVClient.
func (w writes) Txn(ctx context.Context, in *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	r, err := w.KVClient.Txn(ctx, in, o...)
	if puts(in) {
		w.answered(err)
	}
	return r, err
}

// puts reports whether a transaction may write a key. etcd refuses it then, whatever it decides.
func puts(in *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{in.GetSuccess(), in.GetFailure()} {
		for _, op := range ops {
			if op.GetRequestPut() != nil || op.GetRequestTxn() != nil && puts(op.GetRequestTxn()) {
				return true
			}
		}
	}
	return false
}
