package coordinator

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream is a watch on a stream of its own. etcd answers a question about progress for
// a whole stream, and may send the answer after a watch was created that is not as far:
// on a shared stream that watch would seem to have told events that are still to come.
type stream struct {
	clientv3.Watcher
	from int64              // the revision from which it tells; 0: the present
	told clientv3.WatchChan // nil until it was opened
	ctx  context.Context    // ends with the watch
	end  context.CancelFunc
}

// newStream returns a watch from a revision on that is still to be opened. It ends with
// ctx, or by close.
func (p *membership) newStream(ctx context.Context, from int64) *stream {
	s := &stream{Watcher: newWatcher(p.s.client), from: from}
	s.ctx, s.end = context.WithCancel(ctx)
	return s
}

// open opens the watch of a folder. It returns when etcd has created it, or when it has
// ended.
func (s *stream) open(folder string, o ...clientv3.OpOption) {
	s.told = s.Watch(s.ctx, folder, append(o, clientv3.WithPrefix(), clientv3.WithRev(s.from))...)
}

// next waits for the next answer; ok is false once the watch has ended.
func (s *stream) next() (r clientv3.WatchResponse, ok bool) {
	select {
	case r, ok = <-s.told:
	case <-s.ctx.Done(): // the client does not always close its channel then
	}
	return r, ok && s.ctx.Err() == nil
}

func (s *stream) close() {
	if s != nil {
		s.end()
		_ = s.Close()
	}
}

// early is the watch of a newcomer's provider, opened before its key is written; nil if it
// could not be opened, or is in use. etcd takes up to 100 ms to catch up with a watch that
// begins at a revision of the past; this one has nothing to catch up with. It tells again
// what the listing has. One that begins after it is of a store that was put back since, and
// is not followed.
type early struct{ view *stream }

func (e *early) close() {
	e.view.close()
	*e = early{}
}

// watchEarly opens the watch of a newcomer, from the present on, which lasts as long as ctx.
func (p *membership) watchEarly(ctx context.Context) {
	p.early.close()
	c, done := p.s.bounded(ctx)
	defer done()
	s := p.newStream(ctx, 0)
	stop := context.AfterFunc(c, s.end)
	s.open(p.s.keys.Provider(p.provider), clientv3.WithCreatedNotify())
	r, ok := s.next()
	if !stop() || !ok || !r.Created || r.Err() != nil {
		s.close()
		return
	}
	s.from = r.Header.Revision + 1
	p.early.view = s
}
