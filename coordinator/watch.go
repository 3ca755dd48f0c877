package coordinator

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
)

// watch follows a line of the state machine.
type watch struct {
	line *session.Line
	s    *Session
	ctx  context.Context // until the line is forgotten, or the session is closed
	end  context.CancelFunc
	open *stream // the newest; guarded by Session.mu
}

// watchLocked follows a line until that is forgotten.
func (s *Session) watchLocked(l *session.Line) {
	w := &watch{line: l, s: s}
	// A member of etcd that is cut off from its leader says so at once.
	w.ctx, w.end = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	s.mu.watches[l] = w
	s.wg.Go(w.run)
}

// close ends the open stream. The next one opens after about a pause; 0 stands for that of a failure.
func (w *watch) close(pause time.Duration) {
	w.open.pause = pause
	w.open.end()
}

// run opens the watch again where it left off when it breaks or was closed in a rush, and
// at the present after a gap.
func (w *watch) run() {
	for wait := (backoff{}); w.ctx.Err() == nil; {
		err := w.follow(&wait)
		if w.ctx.Err() != nil {
			return
		}
		gap := errors.Is(err, rpctypes.ErrCompacted) || etcdcall.TooLarge(err)
		err = classify(w.ctx, "watch "+w.line.Folder, err)
		w.s.step(session.WatchEnded{Line: w.line, Err: err, Denied: errors.Is(err, ErrPermission), Gap: gap})
		if pause := w.open.pause; pause > 0 {
			sleep(w.ctx, jitter(pause)) // not all at the same instants
		} else {
			wait.sleep(w.ctx)
		}
	}
}

// follow follows one watch to its end.
func (w *watch) follow(wait *backoff) error {
	w.s.mu.Lock()
	w.open = w.s.newStream(w.ctx, w.line.From())
	w.s.stepLocked(session.WatchOpened{Line: w.line})
	w.s.mu.Unlock()
	defer w.open.close()
	w.open.open(w.line.Folder, clientv3.WithCreatedNotify())
	for created := false; ; created = true {
		r, ok := w.open.next()
		if !created && w.open.ctx.Err() == nil && (!ok || r.Err() != nil) { // the client's error does not say whether the folder may be read
			if _, err := w.s.kv.Get(w.ctx, w.line.Folder, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()); err != nil {
				return err
			}
		}
		if !ok {
			return nil
		}
		if err := r.Err(); err != nil {
			return err
		}
		if !r.Created {
			wait.reset()
		}
		w.take(&r)
	}
}

// take takes one answer of the watch: its events by the memberships that they are about.
func (w *watch) take(r *clientv3.WatchResponse) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	e := session.WatchAnswer{Line: w.line, Created: r.Created, Progress: r.IsProgressNotify(), Revision: r.Header.Revision, Cluster: r.Header.ClusterId}
	about := map[*session.Member]int{} // where a member stands in e.Told
	prefix := len(w.s.keys.Provider(""))
	for _, event := range r.Events {
		key := string(event.Kv.Key)
		end := strings.IndexByte(key[min(prefix, len(key)):], '/')
		e.Newest = event.Kv.ModRevision
		p := w.line.Member(key[:prefix+end+1])
		if p == nil {
			continue
		}
		i, known := about[p]
		if !known {
			i, about[p] = len(e.Told), len(e.Told)
			e.Told = append(e.Told, session.Told{Member: p})
		}
		e.Told[i].Keys = append(e.Told[i].Keys, w.s.parse(p.Provider, event.Kv, event.Type == clientv3.EventTypeDelete))
	}
	w.s.stepLocked(e)
}

// askProgress asks how far the watch has told. It does not wait: a watch whose connection
// hangs takes no question. The question outlives the probe that asks it, or it would be lost
// as often as not.
func (w *watch) askProgress(timeout time.Duration) {
	open := w.open
	w.s.wg.Go(func() {
		ctx, done := context.WithTimeout(w.ctx, timeout) // of the watch's own stream
		defer done()
		_ = open.RequestProgress(ctx)
	})
}
