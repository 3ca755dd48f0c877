package etcdcall

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// The pause after a refused login: firstPause, doubled by each further refusal up to lastPause.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// Logins holds a client's calls back after etcd has refused the client's user or password.
//
// etcd's client logs in for each stream that it opens, and for each call whose token etcd does not know. etcd takes
// about a tenth of a processor's second for each password, a wrong one too. Some processes that went on asking would
// keep it so busy that nobody else could log in, not even who comes to correct the password. So after a refusal all
// calls fail at once, with the error of the latest attempt. After a pause one call goes out. If it succeeds, all do.
//
// Only a stream that opens shows for sure that the password is right: a call may go by a token that outlives it. So
// the pause begins anew from firstPause only after that. The zero Logins holds nothing back.
type Logins struct {
	mu    sync.Mutex
	last  error         // of the latest attempt while calls are held back; else nil
	pause time.Duration // the latest; 0: nothing was refused since a stream was opened
	until time.Time     // when the next call may go out, while last is set
}

// enter returns why a call may not go out now; nil if it may. trial says that it is the one that goes out after a pause.
func (l *Logins) enter() (trial bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return false, nil
	}
	now := time.Now()
	if now.Before(l.until) {
		return false, l.last
	}
	l.until = now.Add(Timeout) // the others wait for its answer
	return true, nil
}

// leave takes the answer to a call that went out. Calls that were under way at the first refusal change nothing.
func (l *Logins) leave(trial, stream bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch refused := errors.Is(Kind(err), cause.ErrLogin); {
	case l.last != nil && !trial:
	case refused, trial && unanswered(err):
		l.pause = min(max(firstPause, 2*l.pause), lastPause)
		l.until = time.Now().Add(l.pause/2 + rand.N(l.pause/2))
		if l.last == nil || status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
			l.last = err
		}
	default:
		if l.last = nil; stream && err == nil {
			l.pause = 0
		}
	}
}

// unanswered reports whether an error leaves open what etcd thinks of the password.
func unanswered(err error) bool {
	return err != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled ||
		errors.Is(Kind(err), ErrUnreachable) || errors.Is(Kind(err), cause.ErrToken))
}

// Held makes a call, unless a refused login holds it back.
func Held[R any](l *Logins, call func() (R, error)) (R, error) { return held(l, false, call) }

// HeldStream opens a stream, unless a refused login holds it back.
func HeldStream[R any](l *Logins, open func() (R, error)) (R, error) { return held(l, true, open) }

func held[R any](l *Logins, stream bool, call func() (R, error)) (r R, err error) {
	trial, err := l.enter()
	if err != nil {
		return r, err
	}
	r, err = call()
	l.leave(trial, stream, err)
	return r, err
}

// heldKV holds the calls of a session back. A session makes no others.
type heldKV struct {
	pb.KVClient
	logins *Logins
}

// Range implements pb.KVClient.
func (h heldKV) Range(ctx context.Context, in *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	return Held(h.logins, func() (*pb.RangeResponse, error) { return h.KVClient.Range(ctx, in, o...) })
}

// Put implements pb.KVClient.
func (h heldKV) Put(ctx context.Context, in *pb.PutRequest, o ...grpc.CallOption) (*pb.PutResponse, error) {
	return Held(h.logins, func() (*pb.PutResponse, error) { return h.KVClient.Put(ctx, in, o...) })
}

// Txn implements pb.KVClient.
func (h heldKV) Txn(ctx context.Context, in *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	return Held(h.logins, func() (*pb.TxnResponse, error) { return h.KVClient.Txn(ctx, in, o...) })
}
