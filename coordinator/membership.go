package coordinator

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// membership is this process's part in one provider.
type membership struct {
	s        *Session
	provider string
	sink     feed.Sink
	users    int // guarded by Session.mu

	ctx    context.Context // until the last subscription or the session is closed
	cancel context.CancelFunc
	parts  sync.WaitGroup // run, fund and pushBacks

	// attempt is one to register whose outcome is unknown; nil if there is none.
	// It is run's own, and close's when run has ended.
	attempt *incarnation
	early   early // run's own
	// duplicate warns of a membership of another session in the same provider.
	duplicate sync.Once
	muted     sync.Once // it may not lend
	// state is the file in Options.StateDir, nil if there is none; before is what the
	// process before has left there, nil once that is decided. run sets both, before key.
	state  *stateFile
	before *view.Checkpoint
	begin  view.Position // where its history begins for this process

	mu          sync.Mutex
	incarnation // in force
	tracker     view.Tracker
	reports     view.Reports    // of this incarnation
	policy      *quota.Policy   // in the view
	policyAt    int64           // revision of policy
	level       *protocol.Level // in the view
	paced       *protocol.Pace  // in the view
	pacedAt     int64           // monotonic, when that was learned of
	unpaced     error           // the pace may not be written
	levelled    int64           // monotonic, when level was applied; 0 if there was none
	proved      int64           // monotonic instant of the newest proof, 0 if none
	behind      int64           // since when the watch has been behind, 0 if it is not
	failure     error           // the reason why this membership cannot follow its provider, or nil
	problem     string          // all of that, as last told to the sink
	open        *stream         // the open watch; nil while there is none
	relist      bool            // the history has a gap
	checking    bool            // a check of a doubted view is under way
	silent      bool            // the sink is closed
	until       int64           // announced end, corrected wall time; 0 if none was announced
	// opens is the wall time from which windows may start that the process before has not
	// issued permits of; 0 if there was none.
	opens int64
	// checkpoint is what the state file shall hold.
	checkpoint view.Checkpoint
	unkept     atomic.Bool // the last write of it failed
	asking     asking
	carries    bool // the sink asks and lends

	funding  funding
	reported reporting // owned by the goroutine that writes reports
}

func newMembership(s *Session, provider string, sink feed.Sink) *membership {
	p := &membership{s: s, provider: provider, sink: sink}
	p.funding = funding{holder: rand.Text()[:16], windows: map[time.Duration]*funded{}}
	// A member of etcd that is cut off from its leader says so at once, and the next
	// question goes to another. Not for probes: etcd's client would repeat them
	// without a pause while no member has a leader.
	p.ctx, p.cancel = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	return p
}

// run registers and follows the watch, again and again, until closed.
func (p *membership) run() {
	defer p.noteClosed()
	p.openState()
	defer p.closeState()
	p.trouble(nil) // the session's
	var wait backoff
	for p.ctx.Err() == nil {
		l, err := p.s.awaitLease(p.ctx)
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(p.ctx)
		stop := context.AfterFunc(l.lost, cancel)
		err = p.register(ctx, l)
		registered := err == nil
		if registered {
			err = p.follow(ctx)
		}
		if l.lost.Err() != nil {
			err = errLease
		}
		stop()
		p.early.close()
		cancel()
		p.mu.Lock()
		proved, ended := p.proved != 0, p.until != 0
		p.mu.Unlock()
		if registered && proved { // a view that was never proved came up in an overload
			wait.reset()
		}
		if p.ctx.Err() != nil || ended {
			return
		}
		p.trouble(err)
		if !wait.sleep(p.ctx) {
			return
		}
	}
}

// short reduces a name to characters that read well in a key.
func short(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), 64)]
}

// listLocked starts the history from a listing at a mark.
func (p *membership) listLocked(m mark, all []view.Key) {
	v := p.tracker.List(m.sent, m.asOf(), m.cluster, all)
	p.tracker.Wrote(m.revision)
	p.reports.Reset(m.revision, m.report)
	p.levelLocked(v.Level)
	p.paceLocked(v.Pace)
	p.policyAt = v.PolicyRevision
	p.policy, p.proved, p.behind, p.relist, p.checking = v.Policy, 0, 0, false, false
	p.openLocked()
	p.checkpointLocked(m)
	p.askedAtLocked(m.asOf(), all)
	if !p.silent {
		at := p.s.o.Clock.Now()
		since := at.Mono
		if m.begin.Revision != 0 {
			at, since = p.state.locked, p.state.locked.Mono-(p.state.host-m.begin.At)
		}
		p.sink.Reset(at, since, p.id, v)
		if p.until != 0 {
			p.sink.Announce(p.until)
		}
	}
	p.tellLocked(nil)
}

// parse returns a key with as much of its value as may be used; a byte more says
// that the value is too long.
func (p *membership) parse(kv *mvccpb.KeyValue, deleted bool) view.Key {
	k := view.Key{Revision: kv.ModRevision, Deleted: deleted}
	key, most := string(kv.Key), 0
	if key == p.s.keys.Policy(p.provider) {
		k.Kind, most = view.Policy, quota.MaxPolicyBytes+1
	} else if key == p.s.keys.Level(p.provider) {
		k.Kind, most = view.Level, protocol.MaxLevelBytes+1
	} else if key == p.s.keys.Pace(p.provider) {
		k.Kind, most = view.Pace, protocol.MaxPaceBytes+1
	} else if key == p.s.keys.Backoff(p.provider) {
		k.Kind, most = view.Backoff, protocol.MaxBackoffBytes+1
	} else if id, ok := keys.IncarnationIn(p.s.keys.Instances(p.provider), key); ok {
		k.Kind, k.ID, k.First, most = view.Instance, id, !deleted && kv.CreateRevision == kv.ModRevision, protocol.MaxInstanceBytes+1
	}
	k.Value = bytes.Clone(kv.Value[:min(len(kv.Value), most)])
	return k
}

// tellLocked tells the sink the problem, if that has changed.
func (p *membership) tellLocked(err error) {
	p.failure = err
	err = errors.Join(p.s.problem(), err, p.tracker.Problem(), p.asking.denied, p.unpaced)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == p.problem || p.silent {
		return
	}
	p.problem = text
	if err != nil {
		p.s.o.Logger.Warn("provider has a problem", "provider", p.provider, "problem", text)
	} else {
		p.s.o.Logger.Info("provider's problem is over", "provider", p.provider)
	}
	p.sink.Trouble(err)
}

func (p *membership) trouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellLocked(err)
}

// close ends the membership: first nothing is issued any more, then the key says so,
// then it goes.
func (p *membership) close() error {
	p.cancel()
	p.parts.Wait() // and the sink is closed
	own := p.current()
	if own.key == "" && p.attempt == nil || p.s.ctx.Err() != nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), defaultTimeout)
	defer done()
	indebted, err := p.part(ctx)
	if a := p.attempt; a != nil { // its keys may be there
		_, unsure := p.s.kv.Txn(ctx).
			Then(clientv3.OpDelete(a.key), clientv3.OpDelete(p.s.keys.Report(p.provider, a.id))).Commit()
		err = errors.Join(err, unsure)
	}
	if own.key != "" {
		gone := []clientv3.Op{clientv3.OpDelete(own.key)}
		if !indebted {
			gone = append(gone, clientv3.OpDelete(p.s.keys.Report(p.provider, own.id)))
		}
		_, unsure := p.s.kv.Txn(ctx).If(own.lives()).Then(gone...).Commit()
		err = errors.Join(err, unsure)
	}
	return classify(ctx, "leave "+p.provider, err)
}

// closeSink makes the sink issue nothing more, for good.
func (p *membership) closeSink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent {
		p.silent = true
		p.sink.Close()
	}
}
