package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// hearing has a session's watches of asks and loans, all on one stream of etcd's watch
// service: etcd's client would keep goroutines for each. While the stream is broken nothing
// is heard, and that exceeds nothing.
type hearing struct {
	news chan struct{} // holds one when something is to be sent

	mu     sync.Mutex
	hang   context.CancelCauseFunc // ends the stream; nil before the first
	ears   []*ear
	unsent []*pb.WatchRequest
	asked  []*ear         // whose requests etcd has not answered, in order
	open   map[int64]*ear // by the watches of the open stream
}

// ear hears of what is put into a folder from when etcd has created its watch on.
type ear struct {
	folder string
	hear   func(*mvccpb.KeyValue)
	refuse func() // if the account may not read the folder

	// hearing.mu guards these:
	over  bool
	watch int64  // 0 until it is created on the open stream
	then  func() // what to do when it is; nil is nothing
}

// firstWatch is the ID of the first watch of a stream that etcd may choose, plus one.
const firstWatch = 1

// add opens an ear.
func (h *hearing) add(e *ear) *ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addLocked(e)
}

func (h *hearing) addLocked(e *ear) *ear {
	h.ears = append(h.ears, e)
	h.askLocked(e)
	return e
}

// askLocked asks for the watch of an ear, from the present on.
func (h *hearing) askLocked(e *ear) {
	e.watch = 0
	h.asked = append(h.asked, e)
	h.sendLocked(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(e.folder), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(e.folder)),
		Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE},
	}}})
}

func (h *hearing) sendLocked(r *pb.WatchRequest) {
	h.unsent = append(h.unsent, r)
	signal(h.news)
}

// end closes an ear; nil is none.
func (h *hearing) end(e *ear) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(e)
}

func (h *hearing) endLocked(e *ear) {
	if e == nil || e.over {
		return
	}
	h.ears = slices.DeleteFunc(h.ears, func(one *ear) bool { return one == e })
	e.over, e.then = true, nil
	if e.watch > 0 {
		h.cancelLocked(e.watch - firstWatch)
	}
}

func (h *hearing) cancelLocked(id int64) {
	delete(h.open, id)
	h.sendLocked(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// when does something as soon as an ear hears, in place of what it was to do then before.
func (h *hearing) when(e *ear, then func()) {
	h.mu.Lock()
	if e.watch == 0 {
		e.then = then
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	then()
}

// anew asks for all watches on a new stream. It returns false if there is no ear.
func (h *hearing) anew() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent, h.asked, h.open = nil, nil, map[int64]*ear{}
	for _, e := range h.ears {
		h.askLocked(e)
	}
	return len(h.ears) > 0
}

// take returns what is to be sent.
func (h *hearing) take() (all []*pb.WatchRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, h.unsent = h.unsent, nil
	return all
}

// errHungUp ends a stream whose connection was given up.
var errHungUp = errors.New("the connection is made anew")

// hangUp ends the stream that is open, or being opened. The next one opens soon.
func (h *hearing) hangUp() {
	h.mu.Lock()
	hang := h.hang
	h.mu.Unlock()
	if hang != nil {
		hang(errHungUp)
	}
}

// errDeaf ends a stream one of whose watches etcd has ended.
var errDeaf = errors.New("etcd has ended a watch of asks or loans")

// answer takes an answer of etcd and does what is to be done by it.
func (h *hearing) answer(r *pb.WatchResponse) error {
	h.mu.Lock()
	e := h.open[r.WatchId]
	var do func()
	switch {
	case r.Created && len(h.asked) == 0, !r.Created && r.Canceled && e != nil:
		h.mu.Unlock()
		return errDeaf
	case r.Created:
		e, h.asked = h.asked[0], h.asked[1:] // etcd answers in order
		switch {
		case r.Canceled && strings.Contains(r.CancelReason, rpctypes.ErrorDesc(rpctypes.ErrPermissionDenied)):
			if !e.over {
				do = e.refuse
			}
		case r.Canceled:
			h.mu.Unlock()
			return errDeaf
		case e.over:
			h.cancelLocked(r.WatchId)
		default:
			h.open[r.WatchId], e.watch = e, r.WatchId+firstWatch
			do, e.then = e.then, nil
		}
	case e != nil:
		do = func() {
			for _, event := range r.Events {
				e.hear(event.Kv)
			}
		}
	}
	h.mu.Unlock()
	if do != nil {
		do()
	}
	return nil
}

// hear hears of asks and loans until the session is closed.
func (s *Session) hear() {
	var wait backoff
	for s.ctx.Err() == nil {
		if s.hearing.anew() {
			if s.listen(&wait); !wait.sleep(s.ctx) {
				return
			}
			continue
		}
		select {
		case <-s.ctx.Done():
		case <-s.hearing.news:
		}
	}
}

// listen does so by one stream, until that breaks.
func (s *Session) listen(wait *backoff) {
	ctx, end := context.WithCancelCause(clientv3.WithRequireLeader(s.ctx))
	var sender sync.WaitGroup
	defer func() {
		if errors.Is(context.Cause(ctx), errHungUp) {
			wait.reset()
		}
		end(nil)
		sender.Wait()
	}()
	s.hearing.mu.Lock()
	s.hearing.hang = end
	s.hearing.mu.Unlock()
	stream, err := etcdcall.NewWatchClient(s.client, &s.logins).Watch(ctx)
	if err != nil {
		return
	}
	sender.Go(func() {
		for {
			for _, r := range s.hearing.take() {
				if stream.Send(r) != nil {
					return // Recv says why
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-s.hearing.news:
			}
		}
	})
	for {
		r, err := stream.Recv()
		if err == nil {
			err = s.hearing.answer(r)
		}
		if err != nil {
			s.o.Logger.Debug("asks and loans are not heard of", "error", err)
			return
		}
		wait.reset()
	}
}
