package coordinator

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// stream is a watch on a stream of its own. etcd answers a question about progress for
// a whole stream, and may send the answer after a watch was created that is not as far:
// on a shared stream that watch would seem to have told events that are still to come.
type stream struct {
	clientv3.Watcher
	from    int64              // the revision from which it tells; 0: the present
	answers clientv3.WatchChan // nil until it was opened
	ctx     context.Context    // ends with the watch
	end     context.CancelFunc
	pause   time.Duration // until the next one opens; 0: that of a failure
}

// newStream returns a watch from a revision on that is still to be opened. It ends with
// ctx, or by close.
func (s *Session) newStream(ctx context.Context, from int64) *stream {
	w := &stream{Watcher: etcdcall.NewWatcher(s.client, &s.logins), from: from}
	w.ctx, w.end = context.WithCancel(ctx)
	return w
}

// open opens the watch of a folder. It returns when etcd has created it, or when it has
// ended. etcd creates a watch at once. If it answers nothing for etcdcall.Timeout, the watch
// ends: a connection that brings nothing is not noticed otherwise while no member follows,
// since there are no probes then.
func (s *stream) open(folder string, o ...clientv3.OpOption) {
	late := time.AfterFunc(etcdcall.Timeout, s.end)
	defer late.Stop()
	s.answers = s.Watch(s.ctx, folder, append(o, clientv3.WithPrefix(), clientv3.WithRev(s.from))...)
}

// next waits for the next answer; ok is false once the watch has ended.
func (s *stream) next() (r clientv3.WatchResponse, ok bool) {
	select {
	case r, ok = <-s.answers:
	case <-s.ctx.Done(): // the client does not always close its channel then
	}
	return r, ok && s.ctx.Err() == nil
}

// close ends the watch. It does not wait until the client's goroutines have ended: Close of etcd's client
// never returns if it comes just after etcd has refused the watch, since the client has that watch in none of
// its lists any more, and its goroutine waits for somebody to hear that it ends.
func (s *stream) close() {
	if s != nil {
		s.end()
		go func() { _ = s.Close() }()
	}
}
