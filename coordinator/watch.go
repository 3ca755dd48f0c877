package coordinator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file joins etcd, the state machine (package session) and the limiters. What a line's watch of etcd answers goes
// into the machine as an event, and so does all else that decides which view a member has. What the machine decides
// then is done here: limiters hear of it by their sinks, and watches are opened and ended. Asks and loans do not pass
// the machine: see hear.go.

// step has the state machine take an event, and does what it decides.
func (s *Session) step(e session.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepLocked(e)
}

func (s *Session) stepLocked(e session.Event) {
	for _, x := range s.mu.Step(e, session.Instant{Instant: s.o.Clock.Now(), Corrected: s.o.Clock.Wall()}) {
		s.runLocked(x)
	}
}

// runLocked does what the state machine has decided. It does not call etcd: the goroutines of the watches and of
// join do that, once they hear of it here, and one for each question about progress.
func (s *Session) runLocked(x session.Effect) {
	switch x := x.(type) {
	case session.Reset:
		x.Sink.Reset(x.At, x.Self, x.View)
	case session.Apply:
		x.Sink.Apply(x.At, x.Change)
	case session.Prove:
		x.Sink.Prove(x.Sent)
	case session.Announce:
		x.Sink.Announce(x.Until)
	case session.Restored:
		x.Sink.Restored()
	case session.Trouble:
		x.Sink.Trouble(x.Err)
	case session.Close:
		x.Sink.Close()
	case session.Follow:
		s.watchLocked(x.Line)
	case session.Forget:
		s.mu.watches[x.Line].end()
		delete(s.mu.watches, x.Line)
	case session.Unwatch:
		s.mu.watches[x.Line].close(x.Pause)
	case session.AskProgress:
		s.mu.watches[x.Line].askProgress(x.Timeout)
	case session.Wake:
		signal(s.joins)
	case session.Log:
		s.o.Logger.Log(context.Background(), x.Level, x.Text, x.Args...)
	}
}

// watch follows a line of the state machine: by one stream of etcd's watch service after the other.
type watch struct {
	line *session.Line
	s    *Session
	ctx  context.Context // until the line is forgotten, or the session is closed
	end  context.CancelFunc
	// open is the newest stream; nil until follow opens one. Only run's goroutine writes it, under Session.mu. Others
	// hold that lock to read it, or to write its pause, which they do only until WatchEnded.
	open *stream
}

// watchLocked follows a line until that is forgotten.
func (s *Session) watchLocked(l *session.Line) {
	w := &watch{line: l, s: s}
	// A member of etcd that is cut off from its leader says so at once.
	w.ctx, w.end = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	s.mu.watches[l] = w
	s.wg.Go(w.run)
}

// close ends the open stream, of which there is one. The next one opens after about a pause; 0 stands for that of a
// failure. Session.mu is held.
func (w *watch) close(pause time.Duration) {
	w.open.pause = pause
	w.open.end()
}

// run follows the line by one stream after the other. Each begins where the one before left off or, after a gap,
// at the present.
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

// follow opens a stream, and takes its answers until it ends. It returns why it has ended: nil if close has ended it,
// the line is forgotten, the session is closed, or the client gives no reason.
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

// take hands one answer of etcd to the state machine, with its events sorted by the members that they are about.
// An event about no member of this session counts only for how far the watch has told.
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

// parse says which of a provider's keys this is, and what it holds: at most as many bytes as a value of its kind may
// have, and one more of a value that is too long. The state machine reads the value.
func (s *Session) parse(provider string, kv *mvccpb.KeyValue, deleted bool) view.Key {
	k := view.Key{Revision: kv.ModRevision, Deleted: deleted}
	key, most := string(kv.Key), 0
	if key == s.keys.Policy(provider) {
		k.Kind, most = view.Policy, quota.MaxPolicyBytes+1
	} else if key == s.keys.Throttle(provider) {
		k.Kind, most = view.Throttle, protocol.MaxThrottleBytes+1
	} else if id, ok := keys.IncarnationIn(s.keys.Instances(provider), key); ok {
		k.Kind, k.ID, most = view.Instance, id, protocol.MaxInstanceBytes+1
	} else if bucket, ok := s.keys.BucketOf(provider, key); ok {
		k.Kind, k.Bucket, most = view.Overrides, bucket, protocol.MaxOverridesBytes+1
	}
	k.Value = bytes.Clone(kv.Value[:min(len(kv.Value), most)])
	return k
}

// askProgress asks etcd how far the watch has told, within timeout. It does not wait for that: while a connection
// hangs, no question can be sent. The question may be under way for longer than the probe that had it asked.
func (w *watch) askProgress(timeout time.Duration) {
	open := w.open
	w.s.wg.Go(func() {
		ctx, done := context.WithTimeout(w.ctx, timeout) // of the watch's own stream
		defer done()
		_ = open.RequestProgress(ctx)
	})
}
