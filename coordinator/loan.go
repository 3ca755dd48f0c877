package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// loanTTL is how long the keys of loans stay, at most; they stay half as long, which is
// longer than anybody joins.
const loanTTL = int64((2 * time.Minute) / time.Second)

// maxLoans bounds the loans that wait to be written. Any beyond it are lost to both.
const maxLoans = 64

// lending is what a session's sinks have lent and is still to be written, and the lease of
// the newest loans: lend's own.
type lending struct {
	made    chan func() error
	lease   clientv3.LeaseID
	granted int64 // monotonic
}

// lend writes what the sinks lend until Close. A sink charges a loan before, so whatever is
// not written, or not in time, is lost and exceeds nothing.
func (s *Session) lend() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case write := <-s.lending.made:
			_ = write()
		}
	}
}

// lendLocked has the sink lend. A role that may not lend ends that.
func (p *membership) lendLocked() {
	p.sink.Lend(func(guest string, l protocol.Loan) {
		write := func() error {
			err := p.writeLoan(guest, &l)
			if errors.Is(err, ErrPermission) {
				p.s.o.Logger.Warn("this instance may not lend to newcomers, which wait for their shares: create the role again",
					"provider", p.provider, "error", err)
				p.mu.Lock()
				p.sink.Lend(nil)
				p.mu.Unlock()
			}
			return err
		}
		select {
		case p.s.lending.made <- write:
		default:
		}
	})
}

func (p *membership) writeLoan(guest string, loan *protocol.Loan) error {
	id, lending := p.current().id, &p.s.lending
	ctx, done := context.WithTimeout(p.ctx, time.Duration(loan.Windows[0].End()-p.s.o.Clock.Wall())+time.Second)
	defer done()
	now := p.s.o.Clock.Mono()
	if lending.lease == clientv3.NoLease || now-lending.granted > loanTTL*int64(time.Second)/2 {
		l, err := p.s.client.Grant(ctx, loanTTL)
		if err != nil {
			return err
		}
		lending.lease, lending.granted = l.ID, now
	}
	b, err := json.Marshal(loan)
	if err != nil {
		return err
	}
	_, err = p.s.kv.Put(ctx, p.s.keys.Loans(p.provider, guest)+id, string(b), clientv3.WithLease(lending.lease))
	return classify(ctx, "lend to a newcomer of "+p.provider, err)
}

// openLoans opens the watch of what the newcomer id is lent. It returns nil if that fails,
// or takes long.
func (p *membership) openLoans(id string) *stream {
	w := p.s.newStream(p.ctx, 0)
	overdue := time.AfterFunc(defaultTimeout, w.end)
	w.open(p.s.keys.Loans(p.provider, id), clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	r, ok := w.next()
	if !overdue.Stop() || !ok || !r.Created || r.Err() != nil {
		w.close()
		p.s.borrowing.Add(-1)
		return nil
	}
	return w
}

// borrow passes on what hosts lend to this newcomer, until it has a share of its own; or
// it closes the watch of that.
func (p *membership) borrow(borrows bool, m *listing) {
	loans, id, from := p.loans, m.id, m.value.From
	p.loans = nil
	if !borrows {
		loans.close()
		p.s.borrowing.Add(-1)
		return
	}
	p.s.wg.Go(func() {
		defer p.s.borrowing.Add(-1)
		p.takeLoans(loans, id, from)
	})
}

// takeLoans takes loans from a watch until an instant.
func (p *membership) takeLoans(loans *stream, id string, from time.Time) {
	defer loans.close()
	over := time.AfterFunc(time.Duration(from.UnixNano()-p.s.o.Clock.Wall()), loans.end)
	defer over.Stop()
	folder := p.s.keys.Loans(p.provider, id)
	for {
		r, ok := loans.next()
		if !ok {
			return
		}
		for _, e := range r.Events {
			host, ok := keys.IncarnationIn(folder, string(e.Kv.Key))
			if !ok {
				continue
			}
			l, err := protocol.ReadLoan(e.Kv.Value)
			if err != nil {
				p.s.o.Logger.Debug("not a loan", "provider", p.provider, "key", string(e.Kv.Key), "error", err)
				continue
			}
			p.mu.Lock()
			if p.id == id && !p.silent {
				p.sink.Borrow(host, l)
			}
			p.mu.Unlock()
		}
	}
}
