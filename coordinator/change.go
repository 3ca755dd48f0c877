package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// MaxTogether is how many policies one transaction can change: etcd takes 128
// operations (its default), and each policy comes with its history record.
const MaxTogether = 64

// Change is a policy to write.
type Change struct {
	Provider string
	// Policy must be valid; Author, if empty, and Time are filled in.
	Policy quota.Policy
	// IfRevision is the revision at which the policy must still be: AnyRevision,
	// 0 for not set, or the one that Get returned.
	IfRevision int64
}

// Put sets a provider's policy, if it is at ifRevision: AnyRevision, 0 for not
// set, or the revision that Get returned. Otherwise it returns a
// *ConflictError. The policy must be valid; Author, if empty, and Time are
// filled in. The history record is written in the same transaction. A settle
// time that is lowered under the freshness still in force is refused.
func (a *Admin) Put(ctx context.Context, provider string, p quota.Policy, ifRevision int64) (Stored, error) {
	w, err := a.prepare(ctx, Change{provider, p, ifRevision})
	if err != nil {
		return Stored{}, err
	}
	revision, err := a.commit(ctx, w)
	w.stored.Revision = revision
	return w.stored, err
}

// PutAll sets the policies of several providers in one transaction: all of them,
// or, with an error, none. It takes MaxTogether at most; each is checked as by
// Put. The result is in the order of the changes.
func (a *Admin) PutAll(ctx context.Context, changes []Change) ([]Stored, error) {
	if len(changes) > MaxTogether {
		return nil, fmt.Errorf("coordinator: %d policies to change: one transaction of etcd takes %d (128 operations, two for each); make it several",
			len(changes), MaxTogether)
	}
	var all []*write
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.Provider] {
			return nil, fmt.Errorf("coordinator: two changes of %s in one transaction", c.Provider)
		}
		seen[c.Provider] = true
		w, err := a.prepare(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Provider, err)
		}
		all = append(all, w)
	}
	if len(all) == 0 {
		return nil, nil
	}
	revision, err := a.commit(ctx, all...)
	if err != nil {
		return nil, err
	}
	var stored []Stored
	for _, w := range all {
		w.stored.Revision = revision
		stored = append(stored, w.stored)
	}
	return stored, nil
}

// Delete removes a provider's policy, if it is at ifRevision, and returns what
// was set. Instances then issue nothing; they stay registered.
func (a *Admin) Delete(ctx context.Context, provider, reason string, ifRevision int64) (Stored, error) {
	old, err := a.Get(ctx, provider)
	if err != nil {
		return old, err
	}
	if ifRevision == AnyRevision {
		ifRevision = old.Revision
	}
	w, err := a.change(ctx, provider, ifRevision, a.o.Author, reason, nil)
	if err == nil {
		_, err = a.commit(ctx, w)
	}
	return old, err
}

// write is one policy to be written, or removed, with its history record.
type write struct {
	key        string
	ifRevision int64
	ops        []clientv3.Op
	stored     Stored // what there will be, without its revision
}

// prepare fills a change in, checks it, and encodes it.
func (a *Admin) prepare(ctx context.Context, c Change) (*write, error) {
	p := c.Policy.WithDefaults()
	if p.Author == "" {
		p.Author = a.o.Author
	}
	p.Time = time.Now().UTC()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	value, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("coordinator: write the policy of %s: %w", c.Provider, err)
	}
	w, err := a.change(ctx, c.Provider, c.IfRevision, p.Author, p.Reason, value)
	if err != nil {
		return nil, err
	}
	w.stored = Stored{Provider: c.Provider, Policy: p}
	return w, nil
}

// change makes ready a new value, or none, and its history record.
func (a *Admin) change(ctx context.Context, provider string, ifRevision int64, who, why string, value []byte) (*write, error) {
	old, raw, _, err := a.read(ctx, provider)
	if err != nil {
		return nil, err
	}
	if ifRevision == AnyRevision {
		ifRevision = old.Revision
	}
	if ifRevision < 0 {
		return nil, fmt.Errorf("coordinator: revision %d: must be a revision, 0 for a policy that is not set, or AnyRevision", ifRevision)
	}
	if old.Revision != ifRevision {
		return nil, &ConflictError{provider, old.Revision, ifRevision}
	}
	if err := a.checkLowering(ctx, provider, raw, value); err != nil {
		return nil, err
	}
	record, err := a.newRecord(provider, old.Revision, raw, value, who, why)
	if err != nil {
		return nil, err
	}
	w := &write{key: a.keys.policy(provider), ifRevision: ifRevision, stored: Stored{Provider: provider}}
	op := clientv3.OpPut(w.key, string(value))
	if value == nil {
		op = clientv3.OpDelete(w.key)
	}
	w.ops = []clientv3.Op{op, record}
	return w, nil
}

// commit makes all of the writes, or none, and returns their revision.
func (a *Admin) commit(ctx context.Context, all ...*write) (int64, error) {
	var (
		unchanged   []clientv3.Cmp
		then, other []clientv3.Op
	)
	for _, w := range all {
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.ifRevision))
		then = append(then, w.ops...)
		other = append(other, clientv3.OpGet(w.key, clientv3.WithKeysOnly()))
	}
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.Txn(c).If(unchanged...).Then(then...).Else(other...).Commit()
	if err != nil {
		what := "change the policy of " + all[0].stored.Provider
		if len(all) > 1 {
			what = fmt.Sprintf("change %d policies", len(all))
		}
		return 0, a.inDoubt(classify(ctx, what, err))
	}
	if !r.Succeeded {
		for i, w := range all {
			conflict := &ConflictError{Provider: w.stored.Provider, Want: w.ifRevision}
			if kvs := r.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
				conflict.Have = kvs[0].ModRevision
			}
			if conflict.Have != conflict.Want {
				return 0, conflict
			}
		}
		return 0, errors.New("coordinator: etcd refused a change, and nothing had changed meanwhile")
	}
	for _, w := range all {
		a.trim(ctx, w.stored.Provider)
	}
	return r.Header.Revision, nil
}

// inDoubt says that a change whose answer was lost may have been made.
func (a *Admin) inDoubt(err error) error {
	if errors.Is(err, ErrUnreachable) {
		return fmt.Errorf("%w; whether the change was made is not known: look before you try again", err)
	}
	return err
}
