package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/view"
)

// line is a session's one line of the store: a watch of all providers, and what is proved
// of it. Memberships are projections of it. An account that may read only some providers
// has a line for each of them, up to mostFolders.
//
// Session.mu guards it.
type line struct {
	view.Line
	s       *Session
	folder  string // that is watched
	ctx     context.Context
	end     context.CancelFunc
	members map[string]*membership // by folder

	begun   bool    // the watch has begun, and no gap was found since
	gen     int     // counts the gaps
	open    *stream // the open watch; nil while there is none
	proved  int64   // monotonic instant of the newest proof, 0 if none
	behind  int64   // since when the watch has been behind, 0 if it is not
	failure error   // why the watch cannot be followed, or nil
	latest  rush
}

// mostFolders bounds the lines of a session.
const mostFolders = 16

var (
	// errLease ends an incarnation whose lease is gone.
	errLease = errors.New("this instance's lease is gone from etcd; unless it is leaving it registers again")
	// errGone ends an incarnation whose key is gone.
	errGone = errors.New("this instance's key is gone from etcd; unless it is leaving it registers again")
	// errFolders refuses a provider beyond mostFolders.
	errFolders = fmt.Errorf("coordinator: this etcd user may read some providers only, and the session has %d of them, the most: "+
		"allow the user to read all providers (quota-admin roles), or use another session", mostFolders)
)

// newLineLocked returns the line of a folder, which is followed until it is ended.
func (s *Session) newLineLocked(folder string) *line {
	l := &line{s: s, folder: folder, members: map[string]*membership{}}
	// A member of etcd that is cut off from its leader says so at once.
	l.ctx, l.end = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	s.mu.lines[folder] = l
	s.wg.Go(l.run)
	return l
}

// attachLocked gives a membership its line.
func (s *Session) attachLocked(p *membership) {
	folder := s.keys.Provider(p.provider)
	l := s.mu.lines[s.keys.Provider("")]
	if s.mu.narrow {
		if l = s.mu.lines[folder]; l == nil && len(s.mu.lines) < mostFolders {
			l = s.newLineLocked(folder)
		}
	}
	if p.line = l; l == nil {
		p.tellLocked(errFolders)
		return
	}
	l.members[folder] = p
}

// detachLocked takes a membership off its line.
func (p *membership) detachLocked() {
	l := p.line
	if l == nil {
		return
	}
	delete(l.members, p.s.keys.Provider(p.provider)) // it stays the line of what is under way
	if p.s.mu.narrow {
		l.end()
		delete(p.s.mu.lines, l.folder)
		for _, next := range p.s.allLocked() {
			if next.line == nil {
				p.s.attachLocked(next)
				break
			}
		}
	}
}

// narrow gives each provider a line of its own.
func (s *Session) narrow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.narrow = true
	delete(s.mu.lines, s.keys.Provider(""))
	for _, p := range s.allLocked() {
		s.attachLocked(p)
	}
}

// all returns the line's memberships in order.
func (l *line) all() (all []*membership) {
	for _, folder := range slices.Sorted(maps.Keys(l.members)) {
		all = append(all, l.members[folder])
	}
	return all
}

// run follows the watch until the line is ended. It opens the watch again where it left
// off when it breaks or was closed in a rush, and at the present after a gap.
func (l *line) run() {
	var wait backoff
	for {
		err := l.follow(&wait)
		l.s.mu.Lock()
		switch {
		case l.ctx.Err() != nil:
		case errors.Is(err, rpctypes.ErrCompacted), tooLarge(err):
			l.gapLocked(err.Error())
		case errors.Is(err, errRush):
		case err != nil:
			l.failLocked(classify(l.ctx, "watch "+l.folder, err))
		}
		narrow := errors.Is(l.failure, ErrPermission) && l.folder == l.s.keys.Provider("")
		held := l.s.holdBackLocked()
		l.s.mu.Unlock()
		switch {
		case l.ctx.Err() != nil:
			return
		case narrow:
			l.s.narrow()
			return
		case errors.Is(err, errRush):
			if !sleep(l.ctx, jitter(held)) { // not all at the same instants
				return
			}
		case !wait.sleep(l.ctx):
			return
		}
	}
}

// failLocked tells all why the watch cannot be followed, or that it is again.
func (l *line) failLocked(err error) {
	if l.failure = err; err != nil {
		l.s.o.Logger.Warn("the watch cannot be followed", "folder", l.folder, "providers", len(l.members), "error", err)
	}
	for _, p := range l.all() {
		p.tellLocked(p.failure)
	}
}

// follow follows one watch to its end.
func (l *line) follow(wait *backoff) error {
	l.s.mu.Lock()
	from := int64(0)
	if l.begun {
		from = l.Position() + 1
	}
	w := l.s.newStream(l.ctx, from)
	l.open, l.behind = w, 0
	l.s.mu.Unlock()
	defer w.close()
	defer func() {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		l.open = nil // there is none to ask for its progress
	}()
	w.open(l.folder, clientv3.WithCreatedNotify())
	for created := false; ; created = true {
		r, ok := w.next()
		if !created && w.ctx.Err() == nil && (!ok || r.Err() != nil) { // the client's error does not say whether the folder may be read
			if _, err := l.s.kv.Get(l.ctx, l.folder, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()); err != nil {
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
		if err := l.take(w.ctx, &r); err != nil {
			return err
		}
	}
}

// take takes one answer of the watch that lasts as long as ctx. After a watch has ended
// its answers do not count: they may be of a store that was replaced.
func (l *line) take(ctx context.Context, r *clientv3.WatchResponse) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	switch {
	case l.begun && r.Header.ClusterId != l.Cluster():
		l.gapLocked("another cluster answered")
		return nil
	case r.Created && !l.begun:
		l.Begin(r.Header.Revision, r.Header.ClusterId)
		l.begun = true
		l.s.wake()
		return nil
	case r.IsProgressNotify():
		l.Progress(r.Header.Revision)
	}
	n := l.deliverLocked(r.Events)
	l.proveLocked()
	if l.latest.changes(n, l.s.o.Clock.Mono(), l.s.holdBackLocked()) {
		return errRush
	}
	return nil
}

// deliverLocked hands events to the memberships that they are about, and returns how many
// there are.
func (l *line) deliverLocked(events []*clientv3.Event) (n int) {
	if len(events) == 0 {
		return 0
	}
	var order []*membership
	keys := map[*membership][]view.Key{}
	prefix := len(l.s.keys.Provider(""))
	for _, e := range events {
		key := string(e.Kv.Key)
		end := strings.IndexByte(key[min(prefix, len(key)):], '/')
		p := l.members[key[:prefix+end+1]]
		if p == nil {
			continue
		}
		if keys[p] == nil {
			order = append(order, p)
		}
		keys[p] = append(keys[p], p.parse(e.Kv, e.Type == clientv3.EventTypeDelete))
		n++
	}
	for _, p := range order {
		p.takeLocked(keys[p])
	}
	l.Progress(events[len(events)-1].Kv.ModRevision)
	return n
}

// proveLocked passes a new proof on to the memberships.
func (l *line) proveLocked() {
	if !l.Behind() {
		l.behind = 0
	}
	proof, ok := l.Proof()
	if !ok || !l.begun || proof.Mono <= l.proved {
		return
	}
	l.proved = proof.Mono
	if l.failure != nil {
		l.failLocked(nil)
	}
	for _, p := range l.all() {
		if p.untold != 0 && l.Position() >= p.untold {
			l.gapLocked("the watch does not tell of a key that this session has written")
			return
		}
		p.proveLocked(proof)
	}
}

// gapLocked notes that the histories have a gap: the watch ends at once, and all begin
// again when another has begun.
func (l *line) gapLocked(why string) {
	if !l.begun {
		return
	}
	l.s.o.Logger.Warn("histories begin again", "folder", l.folder, "providers", len(l.members), "because", why)
	l.begun, l.proved = false, 0
	l.gen++
	if l.open != nil {
		l.open.end()
	}
	for _, p := range l.members {
		if p.stage == following {
			p.stage = toList
		}
	}
}

// askProgress asks how far the watch has told. The answer comes in its own order,
// when all is delivered; while it is not, the next probe asks again. It does not
// wait: a watch whose connection hangs takes no question. The question outlives the
// probe that asks it, or it would be lost as often as not.
func (l *line) askProgress(timeout time.Duration) {
	l.s.mu.Lock()
	w := l.open
	l.s.mu.Unlock()
	if w == nil {
		return
	}
	l.s.wg.Go(func() {
		ctx, done := context.WithTimeout(l.ctx, timeout) // of the watch's own stream
		defer done()
		_ = w.RequestProgress(ctx)
	})
}
