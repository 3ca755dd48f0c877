package histories

import (
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// server is an etcd: a store, leases that run out, and streams of watches. It answers
// at once, or later as long as it has no leader; a link makes that slow and lossy.
type server struct {
	now func() int64 // true time
	mu  sync.Mutex

	store *store
	// life counts the restores: a stream of an earlier life says nothing new.
	life    int
	streams []*stream
	// onCommit is told of each revision, under the lock.
	onCommit func()
	// onExpiry is told of each lease that is about to end, under the lock.
	onExpiry func(lease int64)
	// leaderless and frozen are until when nothing linearizable is answered, and
	// nothing is committed, by true time.
	leaderless, frozen int64
	outage             int64   // from when on etcd is away for good; 0: it is not
	shut               shut    // the newest time that it was shut down
	commits            []int64 // by revision: the true time at which it was committed
}

func newServer(cluster uint64, now func() int64) *server {
	return &server{now: now, store: newStore(cluster), onCommit: func() {}, onExpiry: func(int64) {}}
}

// shut is a time in which etcd shuts down as on SIGTERM, and is away: in [from, end) it serves
// only what was opened before, and in [end, back) nothing.
type shut struct{ from, end, back int64 }

// takes returns when a message is taken, now or later, that comes by what was opened at an instant.
func (x shut) takes(opened, now int64) int64 {
	if now < x.from || now >= x.back || opened < x.from && now < x.end {
		return now
	}
	return x.back
}

// takes is that of the newest time.
func (s *server) takes(opened int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shut.takes(opened, s.now())
}

// lives returns how many restores there were.
func (s *server) lives() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// ready returns from when on the server can serve a request, by true time.
func (s *server) ready(req any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := req.(*pb.RangeRequest); ok {
		if r.Serializable {
			return 0
		}
		return s.leaderless
	}
	if r, ok := req.(*pb.TxnRequest); ok && readsOnly(r) {
		return s.leaderless
	}
	if _, ok := req.(*pb.StatusRequest); ok {
		return 0
	}
	return max(s.leaderless, s.frozen)
}

func readsOnly(r *pb.TxnRequest) bool {
	writes := func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil }
	return !slices.ContainsFunc(r.Success, writes) && !slices.ContainsFunc(r.Failure, writes)
}

// serve answers a request now.
func (s *server) serve(req any) (proto.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.store.revision
	a, err := s.answer(req)
	if s.store.revision != before {
		s.committed()
	}
	return a, err
}

// committed tells of a new revision.
func (s *server) committed() {
	for len(s.commits) <= int(s.store.revision) {
		s.commits = append(s.commits, s.now())
	}
	s.onCommit()
	for _, x := range s.streams {
		x.wake()
	}
}

// applied is the revision that a client's member of etcd has, under the lock.
func (s *server) applied(l *link) int64 {
	r := s.store.revision
	if since := l.behind(); since > 0 {
		for r > 1 && int(r) < len(s.commits) && s.commits[r] >= since {
			r--
		}
	}
	return r
}

// linearizable reports whether a member that lags cannot answer a request yet.
func linearizable(req any) bool {
	r, ok := req.(*pb.RangeRequest)
	return !ok || !r.Serializable
}

func (s *server) answer(req any) (proto.Message, error) {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return s.store.get(r)
	case *pb.PutRequest:
		a, err := s.store.txn(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}})
		if err != nil {
			return nil, err
		}
		p := a.Responses[0].GetResponsePut()
		p.Header = a.Header
		return p, nil
	case *pb.DeleteRangeRequest:
		a, err := s.store.txn(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}})
		if err != nil {
			return nil, err
		}
		d := a.Responses[0].GetResponseDeleteRange()
		d.Header = a.Header
		return d, nil
	case *pb.TxnRequest:
		return s.store.txn(r)
	case *pb.CompactionRequest:
		return &pb.CompactionResponse{Header: s.store.header()}, s.store.compact(r.Revision)
	case *pb.LeaseGrantRequest:
		id, err := s.store.grant(r.ID, r.TTL)
		if err != nil {
			return nil, err
		}
		s.renew(id)
		return &pb.LeaseGrantResponse{Header: s.store.header(), ID: id, TTL: r.TTL}, nil
	case *pb.LeaseRevokeRequest:
		err := s.store.revoke(r.ID)
		return &pb.LeaseRevokeResponse{Header: s.store.header()}, err
	case *pb.LeaseKeepAliveRequest:
		a := &pb.LeaseKeepAliveResponse{Header: s.store.header(), ID: r.ID} // of a member that may lag: see stream
		if s.store.alive(r.ID) {
			s.renew(r.ID)
			a.TTL = s.store.leases[r.ID].ttl
		}
		return a, nil
	case *pb.StatusRequest:
		return &pb.StatusResponse{Header: s.store.header(), Version: "3.6.2", Leader: 1}, nil
	}
	return nil, rpctypes.ErrGRPCNotCapable
}

func (s *server) renew(id int64) {
	l := s.store.leases[id]
	l.expires = s.now() + l.ttl*int64(time.Second)
}

// expire ends the leases that have run out. Nothing can be committed without a leader.
func (s *server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now < max(s.leaderless, s.frozen) || s.shut.end <= now && now < s.shut.back {
		return
	}
	var over []int64
	for id, l := range s.store.leases {
		if s.store.alive(id) && l.expires <= now {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		s.onExpiry(id)
		before := s.store.revision
		_ = s.store.revoke(id)
		if s.store.revision != before {
			s.committed()
		}
	}
}

// restore puts the store back by some revisions. The events on their way to clients by
// streams still come; nothing else does by these.
func (s *server) restore(back int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	s.store.cluster++
	s.store.restore(max(1, s.store.revision-back))
	s.commits = s.commits[:min(len(s.commits), int(s.store.revision)+1)]
	for id := range s.store.leases {
		s.renew(id)
	}
	s.streams = nil
}
