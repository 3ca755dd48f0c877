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

	"github.com/quotient-limiter/quotient/internal/clock"
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
	parts  sync.WaitGroup // of all goroutines, and of a batch that it is in

	// Of the batch that it is in, or of close when that is over:
	attempt *incarnation // one to register whose outcome is unknown; nil if there is none
	// state is the file in Options.StateDir, nil if there is none; before is what the
	// process before has left there, nil once that is decided. Both are set before key.
	opened, ended sync.Once
	state         *stateFile
	before        *view.Checkpoint
	begin         view.Position // where its history begins for this process

	// duplicate warns of a membership of another session in the same provider.
	duplicate sync.Once
	needs     atomic.Bool // the sink has something to take from Pushed or Wanting
	serving   bool        // serve's own

	mu     *sync.Mutex // Session.mu
	line   *line       // nil beyond mostFolders
	stage  stage
	busy   bool // it is in a batch
	large  bool // its values are: they are not listed in a batch
	failed bool // it waits for the session's back-off

	early    [][]view.Key // events since the batch began, by the watch's answers
	gen      int          // the line's when it did
	attached int64        // the line's position then
	listed   int64        // revision of the listing
	seats    int64        // how many instances there were when it registered
	since    int64        // monotonic, when it was listed: earlier probes do not count
	untold   int64        // revision of its key that the watch has still to tell; 0: none

	incarnation // in force
	tracker     view.Tracker
	policy      *quota.Policy     // in the view
	policyAt    int64             // revision of policy
	throttle    protocol.Throttle // in the view
	pacedAt     int64             // monotonic, when its totals were learned of; 0 before the first view
	denied      error             // the throttle may not be written
	proved      int64             // monotonic instant of the newest proof, 0 if none
	failure     error             // the reason why this membership cannot follow its provider, or nil
	problem     string            // all of that, as last told to the sink
	logged      string            // what of it is its own
	silent      bool              // the sink is closed
	until       int64             // announced end, corrected wall time; 0 if none was announced
	// opens is the wall time from which windows may start that the process before has not
	// issued permits of; 0 if there was none.
	opens   int64
	opening protocol.Opening // by which opens was found
	// checkpoint is what the state file shall hold.
	checkpoint view.Checkpoint
	unkept     atomic.Bool // the last write of it failed
	asks       [2]*ear     // of this incarnation, and of samples; nil if the session has one of all
	carries    bool        // the sink asks and lends
	mute       bool        // it may not
	registered bool        // it has been an instance
	sweeping   sweeping

	budgets  budgets
	reported reporting // owned by the goroutine that writes reports
}

func newMembership(s *Session, provider string, sink feed.Sink) *membership {
	p := &membership{s: s, provider: provider, sink: sink, mu: &s.mu.Mutex}
	p.budgets = budgets{holder: rand.Text()[:16], windows: map[time.Duration]*budgetWindow{}}
	// A member of etcd that is cut off from its leader says so at once, and the next
	// question goes to another. Not for probes: etcd's client would repeat them
	// without a pause while no member has a leader.
	p.ctx, p.cancel = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	return p
}

// takeLocked takes events of its folder. They are kept while it is in a batch, and dropped
// while it waits for one: its listing will have them.
func (p *membership) takeLocked(keys []view.Key) {
	if p.stage != following {
		if p.busy {
			p.early = append(p.early, keys)
		}
		return
	}
	for i := range keys {
		if keys[i].Kind == view.Instance && keys[i].ID == p.id && keys[i].Revision == p.untold {
			p.untold = 0
		}
	}
	for _, c := range p.tracker.Events(keys) {
		if c.Policy != nil || c.PolicyDeleted {
			p.policy, p.policyAt = c.Policy, c.Revision
			p.openLocked()
		}
		if c.Throttle != nil || c.ThrottleDeleted {
			p.throttleLocked(c.Throttle)
		}
		if len(c.Deleted) > 0 {
			p.sweeping.clean = false
		}
		if !p.silent {
			p.sink.Apply(p.s.o.Clock.Now(), c)
		}
	}
	if len(keys) > 0 {
		p.tellLocked(nil)
	}
	if !p.tracker.Has(p.id) {
		p.loseLocked(errGone)
	} else if err := p.tooMany(p.tracker.Instances()); err != nil {
		p.stage, p.failed = toList, true
		p.tellLocked(err)
	}
}

// loseLocked notes that the incarnation is over: another follows, unless its end was
// announced.
func (p *membership) loseLocked(err error) {
	p.stage, p.failed = toRegister, true
	if p.until != 0 {
		p.closeSinkLocked()
		return
	}
	p.tellLocked(err)
	p.s.wake()
}

// proveLocked passes the line's proof on.
func (p *membership) proveLocked(proof clock.Instant) {
	if p.stage != following || proof.Mono < p.since || p.silent {
		return
	}
	p.proved = proof.Mono
	p.sink.Prove(proof)
	if p.problem != "" || p.failure != nil || p.denied != nil {
		p.tellLocked(nil)
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

// listLocked starts the history from a listing.
func (p *membership) listLocked(m listing, all []view.Key) {
	v := p.tracker.List(m.asOf(), all)
	p.throttleLocked(v.Throttle)
	p.policyAt = v.PolicyRevision
	p.policy, p.proved, p.since, p.listed = v.Policy, 0, p.s.o.Clock.Mono(), m.revision
	v.First = m.value.First && m.asOf() == m.created
	p.sweeping = sweeping{}
	p.openLocked()
	p.checkpointLocked(m)
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
	} else if key == p.s.keys.Throttle(p.provider) {
		k.Kind, most = view.Throttle, protocol.MaxThrottleBytes+1
	} else if id, ok := keys.IncarnationIn(p.s.keys.Instances(p.provider), key); ok {
		k.Kind, k.ID, most = view.Instance, id, protocol.MaxInstanceBytes+1
	}
	k.Value = bytes.Clone(kv.Value[:min(len(kv.Value), most)])
	return k
}

// tellLocked tells the sink the problem, if that has changed. It logs the provider's own
// part of it; the session and the line log theirs once.
func (p *membership) tellLocked(err error) {
	p.failure = err
	own := errors.Join(err, p.tracker.Problem(), p.denied)
	all := errors.Join(p.s.problemLocked(), own)
	if p.line != nil {
		all = errors.Join(all, p.line.failure)
	}
	if text := textOf(own); text != p.logged && !p.silent {
		if p.logged = text; own != nil {
			p.s.o.Logger.Warn("provider has a problem", "provider", p.provider, "problem", text)
		} else {
			p.s.o.Logger.Info("provider's problem is over", "provider", p.provider)
		}
	}
	if text := textOf(all); text != p.problem && !p.silent {
		p.problem = text
		p.sink.Trouble(all)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
	p.closeSink()
	p.parts.Wait()
	p.end()
	p.mu.Lock()
	p.s.hearing.leave(p)
	p.mu.Unlock()
	own := p.current()
	if own.key == "" && p.attempt == nil || p.s.ctx.Err() != nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), defaultTimeout)
	defer done()
	indebted, err := p.part(ctx)
	if a := p.attempt; a != nil { // its keys may be there
		_, unsure := p.s.kv.Txn(ctx).
			Then(append(p.issuerGone(), clientv3.OpDelete(a.key), clientv3.OpDelete(p.s.keys.Report(p.provider, a.id)))...).Commit()
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

// end gives back what the membership has of the host, when nothing is issued any more.
func (p *membership) end() {
	p.ended.Do(func() {
		p.closeState()
		p.noteClosed()
	})
}

// closeSink makes the sink issue nothing more, for good.
func (p *membership) closeSink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeSinkLocked()
}

func (p *membership) closeSinkLocked() {
	if !p.silent {
		p.silent = true
		p.sink.Close()
	}
}
