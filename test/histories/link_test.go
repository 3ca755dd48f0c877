package histories

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// valCtxCh is a channel that etcd's client makes when the program starts, and waits on.
// It is of no bubble, so TestMain takes it away: nil is never ready either.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

const ms = int64(time.Millisecond)

// span is a part of true time, [from, to).
type span struct{ from, to int64 }

// blocked moves t to the end of the spans that hold it.
func blocked(t int64, spans []span) int64 {
	for moved := true; moved; {
		moved = false
		for _, s := range spans {
			if s.from <= t && t < s.to {
				t, moved = s.to, true
			}
		}
	}
	return t
}

// link is the way between one client and the server. The client is etcd's own; the link
// takes the place of its connection.
type link struct {
	w    *world
	name string

	mu      sync.Mutex
	calm    bool // short delays, and nothing is lost
	dead    bool // nothing comes through any more
	cuts    []span
	hangs   []span // nothing comes by streams
	stands  []span // the process does not run: nothing comes or goes
	late    span   // answers are delayed by more
	by      int64
	lags    []span // the client's member of etcd commits nothing new
	calls   []*call
	streams []*stream
	told    map[string]int64 // by provider: up to which revision it has heard
	renewed map[int64]int64  // by lease: when the newest stream was opened by which it was renewed
	trouble int64            // until when something was wrong with it
	life    int              // of the newest store that has answered, and when it first did
	since   int64
}

// call is a request under way.
type call struct {
	done   chan struct{}
	sent   int64
	answer proto.Message
	err    error
}

// chance is for what happens to a message that is sent now. It depends on the seed, the
// instant and the message only: not on the order of what happens at one instant.
func (l *link) chance(what any) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.name + kindOf(what)))
	return rand.New(rand.NewPCG(h.Sum64()+l.w.seed, uint64(l.w.now())))
}

// kindOf tells messages apart that are sent at one instant, as far as it is the same in
// each run.
func kindOf(what any) string {
	switch m := what.(type) {
	case *pb.RangeRequest:
		return "get" + string(m.Key)
	case *pb.TxnRequest:
		kind := "txn"
		for _, c := range m.Compare {
			kind += string(c.Key)
		}
		for _, o := range m.Success {
			kind += string(o.GetRequestPut().GetKey()) + string(o.GetRequestRange().GetKey())
		}
		return kind
	case proto.Message:
		return string(m.ProtoReflect().Descriptor().Name())
	}
	return fmt.Sprintf("%T", what)
}

// client returns a client of etcd whose connection is the link.
func (l *link) client() *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://model"}, Logger: zap.NewNop(), BackoffJitterFraction: 1e-12,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)},
	})
	if err != nil {
		panic(err)
	}
	return c
}

// delay is that of a message: short mostly, now and then long.
func (l *link) delay(r *rand.Rand) int64 {
	switch n := r.IntN(16); {
	case l.calm || n > 2:
		return 1 + r.Int64N(6*ms)
	case n == 0:
		return 1 + r.Int64N(300*ms)
	}
	return 1 + r.Int64N(60*ms)
}

// transit returns when a message arrives that is sent now; ok is false if it is lost.
// Messages of streams are late at most, while the connection lasts.
func (l *link) transit(m any, ofStream bool) (at int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return 0, false
	}
	r := l.chance(m)
	at = l.w.now() + l.delay(r)
	if through := blocked(at, l.cuts); through > at {
		return blocked(through+1+r.Int64N(10*ms), l.stands), ofStream || r.IntN(2) == 0
	}
	return blocked(at, l.stands), ofStream || l.calm || r.IntN(64) > 0
}

// byStream returns when a message arrives that the server sends by a stream now.
func (l *link) byStream(m any) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return math.MaxInt64
	}
	r := l.chance(m)
	at := l.w.now() + l.delay(r)
	for before := int64(0); before < at; {
		before = at
		at = blocked(blocked(blocked(at, l.cuts), l.hangs), l.stands)
	}
	return at
}

// lagging returns when the client's member of etcd has what was committed now.
func (l *link) lagging() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return blocked(l.w.now()+1+l.chance("lag").Int64N(3*ms), l.lags)
}

// behind reports since when the client's member of etcd lags; 0 if it does not.
func (l *link) behind() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.lags {
		if now := l.w.now(); s.from <= now && now < s.to {
			return s.from
		}
	}
	return 0
}

// caughtUp returns from when on the client's member of etcd does not lag.
func (l *link) caughtUp() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return blocked(l.w.now(), l.lags)
}

// kill lets nothing through any more.
func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// pausing returns when a stream goes on that has sent a part of what it has.
func (l *link) pausing() int64 {
	most := 500 * ms
	if l.calm {
		most = 5 * ms
	}
	return l.w.now() + 1 + l.chance("pause").Int64N(most)
}

// chunk returns how many of the events are sent in one message: whole revisions.
func (l *link) chunk(events []*mvccpb.Event) int {
	n, r := len(events), l.chance(events)
	if r.IntN(2) == 0 {
		n = 1 + r.IntN(n)
	}
	for n < len(events) && events[n].Kv.ModRevision == events[n-1].Kv.ModRevision {
		n++
	}
	return n
}

// repeats reports whether a stream repeats one of so many messages.
func (l *link) repeats(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.calm && n > 1 && l.chance("again").IntN(16) == 0
}

// unary sends a request. It is a grpc.UnaryClientInterceptor.
func (l *link) unary(ctx context.Context, _ string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	c := &call{done: make(chan struct{}), sent: l.w.now()}
	sent := proto.Clone(req.(proto.Message))
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	if at, ok := l.transit(sent, false); ok {
		l.w.at(at, func() { l.arrive(c, sent) })
	}
	defer l.forget(c)
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-c.done:
		if c.err == nil {
			proto.Merge(reply.(proto.Message), c.answer)
		}
		return c.err
	}
}

func (l *link) forget(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = slices.DeleteFunc(l.calls, func(o *call) bool { return o == c })
}

// arrive serves a request, though its caller may have given up, and sends the answer.
func (l *link) arrive(c *call, req proto.Message) {
	at := l.w.server.ready(req)
	if linearizable(req) && at >= 0 {
		at = max(at, l.caughtUp())
	}
	if at = max(at, l.w.server.takes(c.sent)); at > l.w.now() {
		l.w.at(at+1, func() { l.arrive(c, req) })
		return
	}
	a, err := l.w.server.serve(req)
	life := l.w.server.lives()
	l.registers(req, a)
	l.w.trace("serve", l.name, req)
	if at, ok := l.transit(a, false); ok {
		l.w.at(l.taken(at+l.lateness()), func() {
			l.answered(life)
			l.w.trace("answer", l.name, a)
			c.finish(a, err)
		})
	}
}

// answered notes which store has answered the client.
func (l *link) answered(life int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if life > l.life {
		l.life, l.since = life, l.w.now()
	}
}

// outlived reports whether a later store has answered the client before now: nothing comes
// from the one before any more (docs/proof/protocol.md, section 11).
func (l *link) outlived(life int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return life < l.life && l.since < l.w.now()
}

// registers notes up to which revision an instance knows that has registered: its view
// begins there.
func (l *link) registers(req, a proto.Message) {
	t, ok := req.(*pb.TxnRequest)
	done, _ := a.(*pb.TxnResponse)
	if !ok || done == nil || !done.Succeeded || len(t.Success) == 0 {
		return
	}
	for _, f := range l.w.fleets {
		if strings.HasPrefix(string(t.Success[0].GetRequestPut().GetKey()), layout.Instances(f.provider)) {
			l.heard(f.provider, done.Header.Revision)
		}
	}
}

// heard notes up to which revision the client knows a provider's keys.
func (l *link) heard(provider string, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[provider] = max(l.told[provider], revision)
}

func (c *call) finish(a proto.Message, err error) {
	select {
	case <-c.done: // it was broken
	default:
		c.answer, c.err = a, err
		close(c.done)
	}
}

// stream opens a stream. It is a grpc.StreamClientInterceptor.
func (l *link) stream(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s := newStream(ctx, l)
	l.mu.Lock()
	l.streams = append(l.streams, s)
	over := slices.Clone(l.streams)
	l.mu.Unlock()
	over = slices.DeleteFunc(over, func(s *stream) bool { return !s.over() }) // a stream's lock comes before the link's: see SendMsg
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = slices.DeleteFunc(l.streams, func(s *stream) bool { return slices.Contains(over, s) })
	return s, nil
}

var errReset = status.Error(codes.Unavailable, "the connection was reset")

// reset breaks the connection: calls under way fail, whether or not they were served.
func (l *link) reset() {
	l.mu.Lock()
	calls := slices.Clone(l.calls)
	l.trouble = max(l.trouble, l.w.now())
	l.mu.Unlock()
	for _, c := range calls {
		c.finish(nil, errReset)
	}
	l.breakStreams(math.MaxInt64)
}

// breakStreams breaks the streams that were opened before an instant.
func (l *link) breakStreams(before int64) {
	l.mu.Lock()
	streams := slices.Clone(l.streams)
	l.mu.Unlock()
	for _, s := range streams {
		if s.opened < before {
			s.fail(errReset)
		}
	}
}

// block adds a span in which something does not happen.
func (l *link) block(spans *[]span, d int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.w.now()
	*spans = append(*spans, span{now, now + d})
	l.trouble = max(l.trouble, now+d)
}

// slow delays answers by more for a while.
func (l *link) slow(d, by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late, l.by = span{l.w.now(), l.w.now() + d}, by
	l.trouble = max(l.trouble, l.w.now()+d+by)
}

func (l *link) lateness() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late.from <= l.w.now() && l.w.now() < l.late.to {
		return l.by
	}
	return 0
}

// taken returns when a process that may stand still takes what comes at t.
func (l *link) taken(t int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return blocked(t, l.stands)
}

// heal ends every fault but death.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calm = true
	l.cuts, l.hangs, l.lags, l.late = nil, nil, nil, span{}
}
