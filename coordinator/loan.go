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

// loanTTL is how long the keys of loans to one newcomer stay, at most: longer than
// anybody joins.
const loanTTL = int64((2 * time.Minute) / time.Second)

// maxLoans bounds the loans that wait to be written. Any beyond it are lost to both.
const maxLoans = 64

// lend writes what the sink lends until the membership ends. The sink charges a loan
// before, so whatever is not written, or not in time, is lost and exceeds nothing.
func (p *membership) lend() {
	made := make(chan func() error, maxLoans)
	leases := map[string]clientv3.LeaseID{} // of loans, by guest
	p.sink.Lend(func(guest string, l protocol.Loan) {
		select {
		case made <- func() error { return p.writeLoan(guest, &l, leases) }:
		default:
		}
	})
	for {
		select {
		case <-p.ctx.Done():
			return
		case write := <-made:
			if err := write(); errors.Is(err, ErrPermission) {
				p.s.o.Logger.Warn("this instance may not lend to newcomers, which wait for their shares: create the role again",
					"provider", p.provider, "error", err)
				p.mu.Lock()
				p.sink.Lend(nil)
				p.mu.Unlock()
				return
			}
		}
	}
}

func (p *membership) writeLoan(guest string, loan *protocol.Loan, leases map[string]clientv3.LeaseID) error {
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	ctx, done := context.WithTimeout(p.ctx, time.Duration(loan.Windows[0].End()-p.s.o.Clock.Wall())+time.Second)
	defer done()
	if leases[guest] == clientv3.NoLease {
		if len(leases) >= maxLoans {
			clear(leases) // they have run out, or will
		}
		l, err := p.s.client.Grant(ctx, loanTTL)
		if err != nil {
			return err
		}
		leases[guest] = l.ID
	}
	b, err := json.Marshal(loan)
	if err != nil {
		return err
	}
	_, err = p.s.kv.Put(ctx, p.s.keys.Loans(p.provider, guest)+id, string(b), clientv3.WithLease(leases[guest]))
	return classify(ctx, "lend to a newcomer of "+p.provider, err)
}

// borrow passes on what hosts lend to this new incarnation, until it has a share of
// its own.
func (p *membership) borrow(loans *stream, id string, from time.Time) {
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
