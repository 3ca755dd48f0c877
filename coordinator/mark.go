package coordinator

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
)

// A provider's mark says in which store its long windows count: package escrow. An instance reads
// it once, and takes permits on the condition that it is as it was read. So whoever renews it holds
// for all takings that come later.

// errOtherCluster is an answer of a store that the session does not follow, or does not follow yet.
var errOtherCluster = errors.New("another cluster has answered")

// knowMark makes sure that the mark is known, and of the store that is followed. It renews a mark that
// a backup has brought, or that is missing.
func (p *membership) knowMark(ctx context.Context, at session.Standing) error {
	m, key := &p.budgets.mark, p.s.keys.BudgetMark(p.Provider)
	for range takingTries {
		if m.AnsweredBy == at.Cluster {
			if _, renew := m.Renewed(at.Elsewhere, 0, at.Bound); !renew {
				return nil
			}
		}
		r, err := p.s.kv.Txn(ctx).Then(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if r.Header.ClusterId != at.Cluster {
			return errOtherCluster
		}
		kv := etcdcall.KeyIn(r.Responses[0])
		*m = escrow.ReadMark(kv.Value, kv.ModRevision, at.Cluster)
		next, renew := m.Renewed(at.Elsewhere, p.s.o.Clock.Wall(), at.Bound)
		if !renew {
			return nil
		}
		text, err := escrow.Encode(next)
		if err != nil {
			return err
		}
		w, err := p.s.kv.Txn(ctx).If(etcdcall.At(key, m.Revision)).Then(clientv3.OpPut(key, text)).Commit()
		if err != nil {
			*m = escrow.MarkAt{} // it may have been written
			return err
		}
		if w.Header.ClusterId != at.Cluster {
			*m = escrow.MarkAt{}
			return errOtherCluster
		}
		if w.Succeeded {
			*m = escrow.ReadMark([]byte(text), w.Header.Revision, at.Cluster)
			p.s.o.Logger.Warn("nothing more of limits above a minute, or in flight, is handed out in the windows that have begun, unless their count was given since", "provider", p.Provider,
				"because", "etcd was restored, or may have been", "before", time.Unix(0, next.Before).UTC(),
				"do", "docs/run.md, Backup and restore, from step 3, says of which limits to give the count; quota-admin budget "+cause.ShellWord(p.Provider)+" shows what is withheld")
			return nil
		}
		*m = escrow.MarkAt{}
	}
	return errors.New("the mark of the store changes all the time")
}

// verdictOf returns what the mark says of a use's window.
func (f *budgets) verdictOf(u *escrow.KeyUse) *escrow.Verdict {
	l := f.of(u)
	if l.verdict == nil || l.verdict.Cluster != f.mark.AnsweredBy || l.verdictBy != f.mark.Revision || l.verdictOf != u.Start {
		l.verdict, l.verdictBy, l.verdictOf = f.mark.Of(u.Since(), u.Key != ""), f.mark.Revision, u.Start
	}
	return l.verdict
}
