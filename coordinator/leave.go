package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
)

// unsaid is how long a Shutdown may take at most and log nothing: longer than with windows of a second.
const unsaid = 2 * time.Second

// Shutdown ends the session without loss (with a shape other than fixed nobody uses its share for
// a window then): it announces the window from which this process no
// longer takes part, serves until then, and closes. That takes 0.3 s and the rest of the
// longest window that is not above a minute; with a shape other than fixed, also the settle time. It takes
// at least until this process's own share begins, about 4 s after the provider was opened. If
// that is more than 2 s, it logs until when. Call it on SIGTERM, with a context that ends when the
// process must.
//
// If ctx ends first, or no announcement succeeds within 5 s, Shutdown closes immediately, as
// Close does, and returns an error. Else it waits for etcd until ctx ends to remove its keys, and
// at most for the time of the lease (Options.TTL). A second Shutdown waits for the same end as the first.
func (s *Session) Shutdown(ctx context.Context) error {
	s.mustBe("Shutdown")
	if ctx == nil {
		return fmt.Errorf("coordinator: shutdown: %w", errNilContext)
	}
	memberships := s.all()
	ends, failed := make([]int64, len(memberships)), make([]error, len(memberships))
	var wg sync.WaitGroup
	for i, p := range memberships {
		wg.Go(func() { ends[i], failed[i] = p.announceEnd(ctx) })
	}
	wg.Wait()
	last, provider, errs := int64(0), "", []error{cause.Together(failed...)}
	for i, end := range ends {
		if end > last {
			last, provider = end, memberships[i].Provider
		}
	}
	if s.o.Clock.Wall()+int64(unsaid) < last {
		s.o.Logger.Info("shutting down: serves until its share is handed over", "provider", provider, "until", time.Unix(0, last).UTC().Format("15:04:05.000 UTC"))
	}
	for s.o.Clock.Wall() < last { // again if the clock was slewed meanwhile
		if !sleep(ctx, time.Duration(last-s.o.Clock.Wall())) {
			errs = append(errs, fmt.Errorf("coordinator: leave: closed %v before the announced end: %w",
				time.Duration(last-s.o.Clock.Wall()).Round(time.Millisecond), ctx.Err()))
			break
		}
	}
	if err := cause.Together(errs...); err != nil {
		return cause.Together(err, s.Close())
	}
	return s.close(ctx, s.o.TTL) // by then the lease removes its keys
}

// announceEnd writes the end of this instance's part into its key and returns it, in
// corrected wall time; 0 if there is nothing to announce.
func (p *membership) announceEnd(ctx context.Context) (int64, error) {
	p.s.mu.Lock()
	if p.Until() != 0 || p.Own().Key == "" || p.Policy() == nil {
		defer p.s.mu.Unlock()
		return p.Until(), nil
	}
	p.s.stepLocked(session.Ending{Member: p.Member})
	until := p.Until()
	p.s.mu.Unlock()
	if err := p.writeEnd(ctx, time.Unix(0, until)); err != nil {
		return 0, err
	}
	return until, nil
}

// part does in etcd what remains when the sink is closed: it keeps a debt, gives back what
// is left of budgets, and promises that nothing more is issued.
func (p *membership) part(ctx context.Context) (indebted bool, err error) {
	var all sync.WaitGroup
	all.Go(func() { indebted = p.keepDebt(ctx) })
	all.Go(func() { p.giveBack(ctx) })
	err = p.promiseEnd(ctx)
	all.Wait()
	return indebted, err
}

// promiseEnd writes that this instance, whose sink is closed, issues nothing any
// more, unless an announced end says so already. The others then need not wait
// until its key is long gone. No window that starts from now on has begun by this
// clock, which never runs back. Its issuer key goes.
func (p *membership) promiseEnd(ctx context.Context) error {
	p.s.mu.Lock()
	until := p.EndAt(time.Unix(0, p.s.o.Clock.Wall()+1))
	nothing := p.Own().Key == "" || p.Until() != 0 && p.Until() <= until.UnixNano()
	p.s.mu.Unlock()
	gone := p.issuerGone()
	if !nothing {
		return p.writeEnd(ctx, until, gone...)
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := p.s.kv.Txn(ctx).Then(gone...).Commit()
	return classify(ctx, "end this instance of "+p.Provider, err)
}

// debtKept is how long operators see a debt of an instance that has left.
const debtKept = time.Hour

// keepDebt keeps the last report of this instance, whose sink is closed, if it leaves with
// a debt: under a lease of its own, since the session's ends. It returns whether it did.
func (p *membership) keepDebt(ctx context.Context) bool {
	id := p.current().ID
	r := p.reportAt(p.s.o.Clock.Now())
	if r.Debt <= 0 || id == "" {
		return false
	}
	b, err := json.Marshal(r)
	var l *clientv3.LeaseGrantResponse
	if err == nil {
		l, err = p.s.newLease(ctx, int64(debtKept/time.Second))
	}
	if err == nil {
		_, err = p.s.kv.Put(ctx, p.s.keys.Report(p.Provider, id), string(b), clientv3.WithLease(l.ID))
	}
	if err != nil {
		p.s.o.Logger.Warn("could not keep the unpaid debt for operators", "provider", p.Provider, "debt", r.Debt, "error", err)
	}
	return err == nil
}

// writeEnd writes an end into this instance's key, and does more with it.
func (p *membership) writeEnd(ctx context.Context, until time.Time, more ...clientv3.Op) error {
	own := p.current()
	own.Value.Until = until.UTC()
	put, err := putKey(&own, clientv3.WithIgnoreLease())
	if err != nil {
		return fmt.Errorf("coordinator: leave %s: %w", p.Provider, err)
	}
	r, err := p.s.kv.Txn(ctx).If(lives(&own)).Then(append(more, put)...).Else(more...).Commit()
	if err != nil {
		return classify(ctx, "announce the end of this instance of "+p.Provider, err)
	}
	if !r.Succeeded {
		return fmt.Errorf("coordinator: leave %s: %w", p.Provider, errKeyGone)
	}
	return nil
}

// errKeyGone: somebody has removed this instance's key, or its lease has ended, as after a stall.
var errKeyGone = errors.New("the instance's key is gone already")
