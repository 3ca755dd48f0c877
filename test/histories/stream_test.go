package histories

import (
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// stream is both ends of a gRPC stream: the client's, which is a grpc.ClientStream, and
// the server's, which has watches. What goes either way keeps its order.
type stream struct {
	grpc.ClientStream // nil: methods not defined here are not used

	l      *link
	ctx    context.Context
	life   int
	opened int64

	// At the server, guarded by its lock.
	watches []*watch
	created int64
	awake   bool  // events are about to be sent
	told    int64 // the newest revision that was sent
	past    []*pb.WatchResponse

	mu     sync.Mutex
	out    int64 // when the newest message arrives at the server
	in     int64 // and at the client
	mail   []proto.Message
	broken error
	news   chan struct{} // holds one if there is mail
}

// watch is one at the server.
type watch struct {
	id       int64
	key, end string
	puts     bool  // no deletions
	next     int64 // the first revision that is to be sent
	idle     int64 // until then nothing is
}

func newStream(ctx context.Context, l *link) *stream {
	return &stream{l: l, ctx: ctx, opened: l.w.now(), news: make(chan struct{}, 1)}
}

// Context implements grpc.ClientStream.
func (s *stream) Context() context.Context { return s.ctx }

// CloseSend implements grpc.ClientStream.
func (s *stream) CloseSend() error { return nil }

// Header implements grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) { return nil, nil }

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil || s.ctx.Err() != nil {
		return io.EOF
	}
	m = proto.Clone(m.(proto.Message))
	at, ok := s.l.transit(m, true)
	if !ok {
		return nil // it waits for an answer in vain, or until the stream breaks
	}
	s.out = max(s.out+1, at)
	s.l.w.at(s.out, func() { s.receive(m) })
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	for {
		s.mu.Lock()
		if s.ctx.Err() == nil && len(s.mail) > 0 {
			proto.Merge(m.(proto.Message), s.mail[0])
			s.mail = s.mail[1:]
			s.mu.Unlock()
			return nil
		}
		err := s.broken
		s.mu.Unlock()
		if err != nil && s.ctx.Err() == nil {
			return err
		}
		select {
		case <-s.ctx.Done():
			return status.FromContextError(s.ctx.Err()).Err()
		case <-s.news:
		}
	}
}

// over reports whether nothing comes any more.
func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil || s.ctx.Err() != nil
}

// tell rings for mail.
func (s *stream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// fail breaks the stream, as a connection that is reset.
func (s *stream) fail(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.tell()
}

// send sends a message to the client, after those before it.
func (s *stream) send(m proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.l.byStream(m)
	if at == math.MaxInt64 {
		return
	}
	s.in = max(s.in+1, at)
	life := s.life
	s.l.w.at(s.in, func() {
		gone := s.l.outlived(life)
		s.mu.Lock()
		if s.broken == nil && !gone {
			s.mail = append(s.mail, m)
			s.heard(m)
		}
		s.mu.Unlock()
		s.l.w.trace("stream", s.l.name, m)
		s.tell()
	})
}

// heard notes what the client knows by a message.
func (s *stream) heard(m proto.Message) {
	r, ok := m.(*pb.WatchResponse)
	if !ok || len(r.Events) == 0 {
		return
	}
	kv := r.Events[len(r.Events)-1].Kv
	for _, f := range s.l.w.fleets {
		if strings.HasPrefix(string(kv.Key), layout.Provider(f.provider)) {
			s.l.heard(f.provider, kv.ModRevision)
		}
	}
}

// receive takes a message at the server.
func (s *stream) receive(m any) {
	v := s.l.w.server
	if at := v.takes(s.opened); at > v.now() {
		s.l.w.at(at, func() { s.receive(m) })
		return
	}
	switch r := m.(type) {
	case *pb.LeaseKeepAliveRequest:
		if at := v.ready(r); at > v.now() {
			s.l.w.at(at, func() { s.receive(m) })
			return
		}
		if a, err := v.serve(r); err == nil {
			v.mu.Lock()
			a.(*pb.LeaseKeepAliveResponse).Header.Revision = v.applied(s.l)
			s.life = v.life
			s.send(a)
			v.mu.Unlock()
			s.l.renews(r.ID, s.opened)
		}
	case *pb.WatchRequest:
		v.mu.Lock()
		defer v.mu.Unlock()
		if s.over() {
			return
		}
		switch r := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			s.create(r.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			s.cancel(r.CancelRequest.WatchId)
		case *pb.WatchRequest_ProgressRequest:
			s.progress()
		}
	}
}

// create makes a watch, under the server's lock.
func (s *stream) create(r *pb.WatchCreateRequest) {
	v := s.l.w.server
	w := &watch{id: s.created, key: string(r.Key), end: string(r.RangeEnd), puts: slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE)}
	s.created++
	if w.next = r.StartRevision; w.next == 0 {
		w.next = v.store.revision + 1
	}
	if len(s.watches) == 0 {
		s.life = v.life
		v.streams = append(slices.DeleteFunc(v.streams, (*stream).over), s)
	}
	s.send(&pb.WatchResponse{Header: v.store.header(), WatchId: w.id, Created: true})
	if w.next < v.store.compacted {
		s.send(&pb.WatchResponse{Header: v.store.header(), WatchId: w.id, Canceled: true, CompactRevision: v.store.compacted})
		return
	}
	s.watches = append(s.watches, w)
	s.wake()
}

func (s *stream) cancel(id int64) {
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool { return w.id == id })
	s.send(&pb.WatchResponse{Header: s.l.w.server.store.header(), WatchId: id, Canceled: true})
}

// progress tells how far the watches of the stream are, unless they lag. A server of an
// earlier life is not there any more.
func (s *stream) progress() {
	v := s.l.w.server
	if s.life == v.life && s.pump() {
		h := v.store.header()
		if h.Revision = v.applied(s.l); s.told <= h.Revision {
			s.send(&pb.WatchResponse{Header: h, WatchId: -1})
		}
	}
}

// wake sends what is new, a little later, under the server's lock.
func (s *stream) wake() {
	if s.awake {
		return
	}
	s.awake = true
	v := s.l.w.server
	s.l.w.at(s.l.lagging(), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if s.awake = false; s.life == v.life && !s.over() {
			s.pump()
		}
	})
}

// pump sends the events up to now, under the server's lock: those of a revision
// together, of several revisions in one message. Or it sends some of them, the rest a
// while later, and returns false. The header tells the store's revision, not the last one
// that was sent. Now and then an earlier message comes again.
func (s *stream) pump() (all bool) {
	v := s.l.w.server
	all = true
	newest := v.applied(s.l)
	for _, w := range s.watches {
		if s.l.w.now() < w.idle {
			all = false
			continue
		}
		events := v.store.since(w.next, newest, w.key, w.end)
		w.next = max(w.next, newest+1)
		if w.puts {
			events = slices.DeleteFunc(events, func(e *mvccpb.Event) bool { return e.Type == mvccpb.Event_DELETE })
		}
		if len(events) == 0 {
			continue
		}
		if n := s.l.chunk(events); n < len(events) {
			all, events = false, events[:n]
			w.next = events[n-1].Kv.ModRevision + 1
			w.idle = s.l.pausing()
			s.l.w.at(w.idle, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				s.wake()
			})
		}
		s.told = max(s.told, events[len(events)-1].Kv.ModRevision)
		m := &pb.WatchResponse{Header: v.store.header(), WatchId: w.id, Events: events}
		s.send(m)
		if s.past = append(s.past, m); s.l.repeats(len(s.past)) {
			s.send(s.past[s.l.chance("which").IntN(len(s.past))])
		}
	}
	return all
}
