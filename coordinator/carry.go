package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Asks and loans of all providers of a process are written together: one transaction for a
// round, and at most 50 a second. Letters that wait for the same key in etcd are joined. The
// sink charges a loan before, so whatever is not written, or not in time,
// is lost and exceeds nothing.
const (
	round       = 5 * time.Millisecond
	roundsAMore = time.Second / 50 // a round more may be written after so long
	roundsSaved = 10               // at most
	mostLetters = 100              // in one transaction: etcd takes 128
	mostWaiting = 1 << 16
	inFlight    = 8 // transactions
	carryTime   = time.Second
)

// letter is an ask or a loan of an incarnation.
type letter struct {
	p     *membership
	self  string
	key   string // in etcd
	notes []protocol.Note
}

// text returns what is written at a corrected wall time: notes of windows that have ended are
// left out. It is empty if all have.
func (l letter) text(now int64) string {
	notes := slices.DeleteFunc(slices.Clone(l.notes), func(n protocol.Note) bool { return n.Windows[0].End() <= now })
	if len(notes) == 0 {
		return ""
	}
	b, _ := json.Marshal(notes) // numbers and strings always have a text
	return string(b)
}

// post has the letters that wait to be written.
type post struct {
	news chan struct{} // holds one when there are some

	mu      sync.Mutex
	letters []letter
	at      map[string]int // by key
}

// put adds a letter. It is joined with one of the same incarnation that waits for the same key, and
// replaces one of another incarnation.
func (t *post) put(l letter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, there := t.at[l.key]; there {
		if before := t.letters[i]; before.self == l.self {
			notes := before.notes
			for _, n := range l.notes {
				notes = protocol.JoinNote(notes, n)
			}
			l.notes = notes
		}
		t.letters[i] = l
		return
	}
	if len(t.letters) == mostWaiting {
		return
	}
	if t.at == nil {
		t.at = map[string]int{}
	}
	t.at[l.key] = len(t.letters)
	t.letters = append(t.letters, l)
	signal(t.news)
}

// take returns the letters that wait.
func (t *post) take() (all []letter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, t.letters, t.at = t.letters, nil, nil
	return all
}

// carry writes asks and loans until the session is closed.
func (s *Session) carry() {
	busy := make(chan struct{}, inFlight)
	saved, at := float64(roundsSaved), s.o.Clock.Mono()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.post.news:
		}
		now := s.o.Clock.Mono()
		saved, at = min(roundsSaved, saved+float64(now-at)/float64(roundsAMore)), now
		if saved < 1 && !sleep(s.ctx, time.Duration((1-saved)*float64(roundsAMore))) {
			return
		}
		for some := range slices.Chunk(s.post.take(), mostLetters) {
			saved--
			select {
			case <-s.ctx.Done():
				return
			case busy <- struct{}{}:
			}
			s.wg.Go(func() {
				defer func() { <-busy }()
				s.send(some)
			})
		}
		if !sleep(s.ctx, round) {
			return
		}
	}
}

// send writes letters in one transaction. If etcd does not permit it, each is written apart, and the provider of one whose
// key the user may not write is mute from then on. If he may, etcd does not permit the lease, which has a key of
// another provider that he may not write any more. Then it ends soon.
func (s *Session) send(all []letter) {
	ctx, done := context.WithTimeout(s.ctx, carryTime)
	defer done()
	now := s.o.Clock.Wall()
	var ops []clientv3.Op
	for _, l := range all {
		own := l.p.current()
		if text := l.text(now); text != "" && own.ID == l.self {
			ops = append(ops, clientv3.OpPut(l.key, text, clientv3.WithLease(clientv3.LeaseID(own.Lease))))
		}
	}
	if len(ops) == 0 {
		return
	}
	_, err := s.kv.Txn(ctx).Then(ops...).Commit()
	if !denied(err) {
		return
	}
	if len(all) == 1 {
		if l := all[0]; denied(s.tryPut(ctx, l.key)) {
			l.p.muteNow("write", l.key)
		}
		return
	}
	for i := range all {
		s.send(all[i : i+1])
	}
}
