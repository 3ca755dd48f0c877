package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// maxTogether is how many policies Update can change: etcd takes maxOps
// operations, and each policy comes with its history record. Policies whose
// freshness, clock error or windows are lowered take another operation.
const maxTogether = maxOps / 2

// maxOps is etcd's default for the operations of a transaction.
const maxOps = 128

// Put sets a provider's policy, if it is at ifRevision: AnyRevision, 0 for not set, or
// the revision that Get returned. Otherwise it returns a *ConflictError. The policy must
// be valid. Put fills in Time, and Author if it is empty. The same transaction writes the
// history record. Put refuses a settle time too short for a freshness still in force.
func (a *Admin) Put(ctx context.Context, provider string, p quota.Policy, ifRevision int64) (Stored, error) {
	all, err := a.Update(ctx, []string{provider}, func(old []Stored) ([]*quota.Policy, error) {
		return []*quota.Policy{&p}, old[0].at(ifRevision)
	})
	if err != nil {
		return Stored{}, err
	}
	return all[0], nil
}

// at returns a *ConflictError if the policy is at another revision.
func (s *Stored) at(revision int64) error {
	if revision == AnyRevision || revision == s.Revision {
		return nil
	}
	if revision < 0 {
		return fmt.Errorf("coordinator: revision %d: must be a revision, 0 for a policy that is not set, or AnyRevision", revision)
	}
	return &ConflictError{s.Provider, s.Revision, revision}
}

// Update changes the policies of several providers in one transaction: all of them or,
// with an error, none. It reads them once and calls edit with them, at Revision 0 if none
// is set. edit returns the new policies in the same order: nil for an unchanged one, and
// at most 64 others. Each is checked as by Put. If one changes meanwhile, the error is a
// *ConflictError. The result is the stored policies, in the same order.
func (a *Admin) Update(ctx context.Context, providers []string, edit func(old []Stored) ([]*quota.Policy, error)) ([]Stored, error) {
	found, err := a.basis(ctx, providers)
	if err != nil {
		return nil, err
	}
	all := make([]Stored, len(found))
	for i, f := range found {
		all[i] = f.old
	}
	policies, err := edit(slices.Clone(all))
	if err != nil {
		return nil, err
	}
	var writes []*write
	for i, p := range policies {
		if p == nil {
			continue
		}
		w, err := a.prepare(found[i], p, "")
		if err != nil {
			if len(providers) > 1 {
				err = fmt.Errorf("%s: %w", providers[i], err)
			}
			return nil, err
		}
		writes = append(writes, w)
		all[i] = w.stored
	}
	switch n := len(writes); {
	case n == 0:
		return all, nil
	case n > maxTogether:
		return nil, fmt.Errorf("coordinator: %d policies to change: one transaction of etcd takes %d (128 operations, two for each); make it several",
			n, maxTogether)
	}
	revision, err := a.commit(ctx, writes...)
	for i, p := range policies {
		if p != nil {
			all[i].Revision = revision
		}
	}
	return all, err
}

// Delete removes a provider's policy, if it is at ifRevision, and returns it.
// Instances then issue nothing; they stay registered.
func (a *Admin) Delete(ctx context.Context, provider, reason string, ifRevision int64) (Stored, error) {
	found, err := a.basis(ctx, []string{provider})
	if err != nil {
		return Stored{}, err
	}
	old := found[0].old
	if old.Revision == 0 {
		return old, fmt.Errorf("%s: %w", provider, ErrNotFound)
	}
	if err := old.at(ifRevision); err != nil {
		return old, err
	}
	w, err := a.prepare(found[0], nil, reason)
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
	trim       []clientv3.Op // the oldest records, where there is room for that
	superseded []superseded  // to be given a lease
	stored     Stored        // the result, without its revision
}

// basis is the input of a change of one policy, all at one revision.
type basis struct {
	old        Stored
	raw        []byte // of old
	superseded []superseded
	oldest     *etcdserverpb.RangeResponse // keys of the oldest records
}

// trimmed is how many records a change removes at most: one more than it adds.
const trimmed = 2

func (a *Admin) basis(ctx context.Context, providers []string) (all []basis, err error) {
	for i, p := range providers {
		if err := quota.ValidateProvider(p); err != nil {
			return nil, err
		}
		if slices.Contains(providers[:i], p) {
			return nil, fmt.Errorf("coordinator: two changes of %s in one transaction", p)
		}
	}
	const each = 3
	for chunk := range slices.Chunk(providers, maxOps/each) {
		var ops []clientv3.Op
		for _, p := range chunk {
			ops = append(ops,
				clientv3.OpGet(a.keys.Policy(p)),
				clientv3.OpGet(a.keys.Superseded(p), clientv3.WithPrefix()),
				clientv3.OpGet(a.keys.History(p), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(trimmed),
					clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))
		}
		r, err := a.kv.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, classify(ctx, "read the policy of "+strings.Join(chunk, ", "), err)
		}
		for i, p := range chunk {
			found := func(n int) *etcdserverpb.RangeResponse { return r.Responses[each*i+n].GetResponseRange() }
			kv := keyIn(r.Responses[each*i])
			all = append(all, basis{old: stored(p, kv), raw: kv.Value, superseded: supersededIn(found(1).Kvs), oldest: found(2)})
		}
	}
	return all, nil
}

// prepare makes ready a policy, which it fills in and checks, or its removal, with the
// history record.
func (a *Admin) prepare(b basis, p *quota.Policy, reason string) (*write, error) {
	provider, author := b.old.Provider, a.o.Author
	w := &write{key: a.keys.Policy(provider), ifRevision: b.old.Revision, stored: Stored{Provider: provider}}
	put := clientv3.OpDelete(w.key)
	var value []byte
	if p != nil {
		next := p.WithDefaults()
		next.Author, next.Time = cmp.Or(next.Author, author), time.Now().UTC()
		if err := next.Validate(); err != nil {
			return nil, err
		}
		var err error
		if value, err = json.Marshal(next); err != nil {
			return nil, fmt.Errorf("coordinator: write the policy of %s: %w", provider, err)
		}
		author, reason, w.stored.Policy = next.Author, next.Reason, next
		put = clientv3.OpPut(w.key, string(value))
	}
	record, err := a.newRecord(provider, b.old.Revision, b.raw, value, author, reason)
	if err != nil {
		return nil, err
	}
	w.ops = []clientv3.Op{put, record}
	if err := w.supersede(b.superseded, b.raw, policyOf(value), a.keys.Superseded(provider)); err != nil {
		return nil, err
	}
	for i, kv := range b.oldest.Kvs {
		if int64(i) < b.oldest.Count+1-maxRecords {
			w.trim = append(w.trim, clientv3.OpDelete(string(kv.Key)))
		}
	}
	return w, nil
}

// supersede checks the next policy, nil for a deletion, against those before it, of
// which raw is in force, and adds those that the change has to keep.
func (w *write) supersede(before []superseded, raw []byte, next *quota.Policy, folder string) error {
	for _, s := range before {
		if !s.leased {
			w.superseded = append(w.superseded, s)
		}
	}
	if next != nil {
		*next = next.WithDefaults()
	}
	if p := policyOf(raw); p != nil {
		s := superseded{fmt.Sprint(folder, w.ifRevision), false, *p}
		if before = append(before, s); next == nil || !s.covered(next) {
			w.ops = append(w.ops, clientv3.OpPut(s.key, string(raw)))
			w.superseded = append(w.superseded, s)
		}
	}
	if next == nil {
		return nil
	}
	return checkLowering(next, before)
}

func (a *Admin) commit(ctx context.Context, all ...*write) (int64, error) {
	var (
		unchanged   []clientv3.Cmp
		then, other []clientv3.Op
	)
	for _, w := range all {
		unchanged = append(unchanged, is(w.key, w.ifRevision))
		then = append(then, w.ops...)
		other = append(other, clientv3.OpGet(w.key, clientv3.WithKeysOnly()))
	}
	for _, w := range all {
		if len(then)+len(w.trim) <= maxOps {
			then = append(then, w.trim...)
		}
	}
	r, err := a.kv.Txn(ctx).If(unchanged...).Then(then...).Else(other...).Commit()
	if err != nil {
		what := "change the policy of " + all[0].stored.Provider
		if len(all) > 1 {
			what = fmt.Sprintf("change %d policies", len(all))
		}
		return 0, a.inDoubt(classify(ctx, what, err))
	}
	if !r.Succeeded {
		for i, w := range all {
			conflict := &ConflictError{Provider: w.stored.Provider, Have: keyIn(r.Responses[i]).ModRevision, Want: w.ifRevision}
			if conflict.Have != conflict.Want {
				return 0, conflict
			}
		}
		return 0, errors.New("coordinator: etcd refused a change, and nothing had changed meanwhile")
	}
	for _, w := range all {
		for _, s := range w.superseded {
			a.expire(ctx, s)
		}
	}
	return r.Header.Revision, nil
}

// inDoubt says that a change whose answer was lost may have been made.
func (a *Admin) inDoubt(err error) error {
	if errors.Is(err, ErrUnreachable) {
		return fmt.Errorf("%w; the change may have been made: check before you try again", err)
	}
	return err
}
