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
	told clientv3.WatchChan
	ctx  context.Context // ends with the watch
	end  context.CancelFunc
}

// open opens a watch of a folder, from a revision on; 0 is from now on. It ends with
// ctx, or by close.
func (p *membership) open(ctx context.Context, folder string, from int64, o ...clientv3.OpOption) *stream {
	s := &stream{Watcher: newWatcher(p.s.client)}
	s.ctx, s.end = context.WithCancel(ctx)
	s.told = s.Watch(s.ctx, folder, append(o, clientv3.WithPrefix(), clientv3.WithRev(from))...)
	return s
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

// early are the watches of a newcomer, opened before its key is written: of the
// provider, and of its loans. Each is nil if it could not be opened, or is in use. etcd
// takes up to 100 ms to catch up with a watch that begins at a revision of the past;
// these have nothing to catch up with. They tell again what the listing has.
type early struct{ view, loans *stream }

func (e *early) close() {
	e.view.close()
	e.loans.close()
	*e = early{}
}

// watchEarly opens the watches of the newcomer id.
func (p *membership) watchEarly(ctx context.Context, id string) {
	p.early.close()
	c, done := p.s.bounded(ctx)
	defer done()
	created := clientv3.WithCreatedNotify()
	p.early.view = p.open(ctx, p.s.keys.Provider(p.provider), 0, created)
	p.early.loans = p.open(ctx, p.s.keys.Loans(p.provider, id), 0, created, clientv3.WithFilterDelete())
	for _, s := range []**stream{&p.early.view, &p.early.loans} {
		if !(*s).created(c) {
			(*s).close()
			*s = nil
		}
	}
}

// created reports whether etcd has created the watch, whose first answer says so.
func (s *stream) created(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, s.end)
	r, ok := s.next()
	return stop() && ok && r.Created && r.Err() == nil
}
