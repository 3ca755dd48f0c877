package histories

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// store is etcd's data: every version of every key since the beginning, and leases. It
// has no clock; it is not safe for concurrent use. The zero store is not usable: see
// newStore.
type store struct {
	cluster   uint64
	revision  int64
	compacted int64 // older revisions are not answered
	keys      map[string][]*mvccpb.Event
	log       []*mvccpb.Event // of all keys, in order
	leases    map[int64]*lease
	granted   int64 // how many leases were granted
}

// lease is one that was granted. Of one that is gone the store keeps what a restore
// needs.
type lease struct {
	ttl           int64 // s
	granted, gone int64 // revisions
	expires       int64 // the server's: when, by true time
}

func newStore(cluster uint64) *store {
	return &store{cluster: cluster, revision: 1, keys: map[string][]*mvccpb.Event{}, leases: map[int64]*lease{}}
}

func (s *store) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.cluster, MemberId: 1, Revision: s.revision, RaftTerm: 2}
}

// within reports whether a key lies in [key, end), as etcd means that.
func within(k, key, end string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// at returns a key's value as of a revision, nil if it has none.
func (s *store) at(key string, revision int64) *mvccpb.KeyValue {
	for _, e := range slices.Backward(s.keys[key]) {
		if e.Kv.ModRevision <= revision {
			if e.Type == mvccpb.Event_DELETE {
				return nil
			}
			return e.Kv
		}
	}
	return nil
}

// in returns the values of a range as of a revision, by key.
func (s *store) in(key, end string, revision int64) (all []*mvccpb.KeyValue) {
	for k := range s.keys {
		if within(k, key, end) {
			if kv := s.at(k, revision); kv != nil {
				all = append(all, kv)
			}
		}
	}
	slices.SortFunc(all, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return all
}

// readable returns etcd's error for a read as of a revision; 0 is the present.
func (s *store) readable(revision int64) error {
	switch {
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	case revision > 0 && revision < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

// get answers a range.
func (s *store) get(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := s.readable(r.Revision); err != nil {
		return nil, err
	}
	found := s.in(string(r.Key), string(r.RangeEnd), cmp.Or(r.Revision, s.revision))
	a := &pb.RangeResponse{Header: s.header(), Count: int64(len(found))}
	if r.CountOnly {
		return a, nil
	}
	found = slices.DeleteFunc(found, func(kv *mvccpb.KeyValue) bool {
		return r.MaxCreateRevision > 0 && kv.CreateRevision > r.MaxCreateRevision || kv.CreateRevision < r.MinCreateRevision ||
			r.MaxModRevision > 0 && kv.ModRevision > r.MaxModRevision || kv.ModRevision < r.MinModRevision
	})
	sortBy(found, r)
	if a.More = r.Limit > 0 && int64(len(found)) > r.Limit; a.More {
		found = found[:r.Limit]
	}
	for _, kv := range found {
		if r.KeysOnly {
			lease := kv.Lease
			if r.SortTarget != pb.RangeRequest_VALUE { // then etcd does not read the values, where it has leases
				lease = 0
			}
			kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: lease}
		}
		a.Kvs = append(a.Kvs, kv)
	}
	return a, nil
}

func sortBy(all []*mvccpb.KeyValue, r *pb.RangeRequest) {
	if r.SortOrder == pb.RangeRequest_NONE {
		return
	}
	slices.SortStableFunc(all, func(a, b *mvccpb.KeyValue) int {
		var c int
		switch r.SortTarget {
		case pb.RangeRequest_KEY:
			c = bytes.Compare(a.Key, b.Key)
		case pb.RangeRequest_VERSION:
			c = cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			c = cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			c = cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			c = bytes.Compare(a.Value, b.Value)
		}
		if r.SortOrder == pb.RangeRequest_DESCEND {
			return -c
		}
		return c
	})
}

// note adds a version of a key, of the revision.
func (s *store) note(e *mvccpb.Event) {
	key := string(e.Kv.Key)
	s.keys[key] = append(s.keys[key], e)
	s.log = append(s.log, e)
}

// put writes a key at a revision.
func (s *store) put(r *pb.PutRequest, revision int64) *pb.PutResponse {
	old := s.at(string(r.Key), revision)
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: revision, ModRevision: revision, Version: 1, Lease: r.Lease}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	if r.IgnoreValue {
		kv.Value = old.Value
	}
	if r.IgnoreLease {
		kv.Lease = old.Lease
	}
	s.note(&mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	a := &pb.PutResponse{Header: s.header()}
	if r.PrevKv {
		a.PrevKv = old
	}
	return a
}

// remove deletes a range at a revision.
func (s *store) remove(r *pb.DeleteRangeRequest, revision int64) *pb.DeleteRangeResponse {
	a := &pb.DeleteRangeResponse{Header: s.header()}
	for _, kv := range s.in(string(r.Key), string(r.RangeEnd), revision) {
		s.note(&mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: revision}})
		if a.Deleted++; r.PrevKv {
			a.PrevKvs = append(a.PrevKvs, kv)
		}
	}
	return a
}

// txn commits a transaction: one revision for all that it writes, or none.
func (s *store) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	a := &pb.TxnResponse{Succeeded: s.allHold(r.Compare)}
	ops := r.Failure
	if a.Succeeded {
		ops = r.Success
	}
	if err := s.refuses(ops); err != nil {
		return nil, err
	}
	before, revision := len(s.log), s.revision+1
	present := s.revision
	a.Responses = s.all(ops, before, revision)
	s.revision = present
	if len(s.log) > before {
		s.revision = revision
	}
	a.Header = s.header()
	return a, nil
}

// all runs operations at a revision; before is how long the log was.
func (s *store) all(ops []*pb.RequestOp, before int, revision int64) (all []*pb.ResponseOp) {
	for _, op := range ops {
		if len(s.log) > before {
			s.revision = revision // what follows reads what was written
		}
		if r := op.GetRequestTxn(); r != nil {
			a := &pb.TxnResponse{Header: s.header(), Succeeded: s.allHold(r.Compare)}
			ops := r.Failure
			if a.Succeeded {
				ops = r.Success
			}
			a.Responses = s.all(ops, before, revision)
			all = append(all, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: a}})
			continue
		}
		all = append(all, s.do(op, revision))
	}
	return all
}

func (s *store) allHold(all []*pb.Compare) bool {
	return !slices.ContainsFunc(all, func(c *pb.Compare) bool { return !s.holds(c) })
}

// do runs an operation that refuses does not refuse.
func (s *store) do(op *pb.RequestOp, revision int64) *pb.ResponseOp {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		a, err := s.get(r.RequestRange)
		if err != nil {
			panic(err)
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: a}}
	case *pb.RequestOp_RequestPut:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: s.put(r.RequestPut, revision)}}
	case *pb.RequestOp_RequestDeleteRange:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: s.remove(r.RequestDeleteRange, revision)}}
	}
	panic("an operation that is not modelled")
}

// refuses returns why etcd does not even begin with the operations.
func (s *store) refuses(ops []*pb.RequestOp) error {
	for _, op := range ops {
		if r := op.GetRequestRange(); r != nil {
			if err := s.readable(r.Revision); err != nil {
				return err
			}
		}
		if r := op.GetRequestTxn(); r != nil {
			if err := s.refuses(append(slices.Clip(r.Success), r.Failure...)); err != nil {
				return err
			}
		}
		r := op.GetRequestPut()
		switch {
		case r == nil:
		case r.Lease != 0 && !s.alive(r.Lease):
			return rpctypes.ErrGRPCLeaseNotFound
		case (r.IgnoreValue || r.IgnoreLease) && s.at(string(r.Key), s.revision) == nil:
			return rpctypes.ErrGRPCKeyNotFound
		}
	}
	return nil
}

// holds reports whether a condition holds for all keys of its range.
func (s *store) holds(c *pb.Compare) bool {
	kvs := s.in(string(c.Key), string(c.RangeEnd), s.revision)
	if len(kvs) == 0 {
		// A key that is not there has revisions 0, and no value.
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kvs = append(kvs, &mvccpb.KeyValue{})
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !compares(c, kv) })
}

func compares(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var d int
	switch c.Target {
	case pb.Compare_VALUE:
		d = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		d = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		d = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		d = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		d = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return d == 0
	case pb.Compare_NOT_EQUAL:
		return d != 0
	case pb.Compare_GREATER:
		return d > 0
	case pb.Compare_LESS:
		return d < 0
	}
	panic("no such comparison")
}

// compact forgets what was before a revision.
func (s *store) compact(revision int64) error {
	switch {
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	s.compacted = revision
	return nil
}

// since returns the events of a range from a revision on, up to another.
func (s *store) since(from, to int64, key, end string) (events []*mvccpb.Event) {
	first, _ := slices.BinarySearchFunc(s.log, from, func(e *mvccpb.Event, r int64) int { return cmp.Compare(e.Kv.ModRevision, r) })
	for _, e := range s.log[first:] {
		if e.Kv.ModRevision > to {
			break
		}
		if within(string(e.Kv.Key), key, end) {
			events = append(events, e)
		}
	}
	return events
}

// grant returns a new lease's ID; of 0 the store chooses it.
func (s *store) grant(id, ttl int64) (int64, error) {
	if s.granted++; id == 0 {
		id = s.granted<<32 + s.granted*7919
	}
	if s.alive(id) {
		return 0, rpctypes.ErrGRPCLeaseExist
	}
	s.leases[id] = &lease{ttl: ttl, granted: s.revision, gone: math.MaxInt64}
	return id, nil
}

func (s *store) alive(id int64) bool { l := s.leases[id]; return l != nil && l.gone == math.MaxInt64 }

// revoke ends a lease, and deletes its keys in one revision.
func (s *store) revoke(id int64) error {
	if !s.alive(id) {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	s.leases[id].gone = s.revision
	var keys []string
	for k := range s.keys {
		if kv := s.at(k, s.revision); kv != nil && kv.Lease == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, strings.Compare)
	for _, k := range keys {
		s.note(&mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(k), ModRevision: s.revision + 1}})
	}
	if len(keys) > 0 {
		s.revision++
	}
	return nil
}

// restore puts the store back to an older revision, as a backup that is copied back.
func (s *store) restore(revision int64) {
	later := func(e *mvccpb.Event) bool { return e.Kv.ModRevision > revision }
	for k := range s.keys {
		s.keys[k] = slices.DeleteFunc(slices.Clone(s.keys[k]), later)
	}
	s.log = slices.DeleteFunc(slices.Clone(s.log), later)
	for id, l := range s.leases {
		if l.granted > revision {
			delete(s.leases, id)
		} else if l.gone >= revision {
			l.gone = math.MaxInt64
		}
	}
	s.revision, s.compacted = revision, min(s.compacted, revision)
}
