package admin

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

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// maxTogether is how many policies Update can change: etcd takes etcdcall.MaxOps
// operations, and each policy comes with its history record. Policies whose
// freshness, clock error or windows are lowered take another operation.
const maxTogether = etcdcall.MaxOps / 2

// Put sets a provider's policy. It fills in Time, and Author if it is empty. The same
// transaction writes the history record. If the policy is not valid, the error has its
// *quota.FieldErrors. Put also refuses a settle time too short for a freshness still in
// force. If the policy changes at the same moment, the error is a *ConflictError.
func (a *Client) Put(ctx context.Context, provider string, p quota.Policy) (Stored, error) {
	return a.put(ctx, provider, p, always)
}

// PutIf is Put if the policy has that revision, as returned by Get; 0 means not set.
// Otherwise it changes nothing and returns a *ConflictError.
func (a *Client) PutIf(ctx context.Context, provider string, p quota.Policy, revision int64) (Stored, error) {
	return a.put(ctx, provider, p, at(revision))
}

func (a *Client) put(ctx context.Context, provider string, p quota.Policy, may func(Stored) error) (Stored, error) {
	all, err := a.Update(ctx, []string{provider}, func(old []Stored) ([]*quota.Policy, error) {
		return []*quota.Policy{&p}, may(old[0])
	})
	if err != nil {
		return Stored{}, err
	}
	return all[0], nil
}

func always(Stored) error { return nil }

// at returns a check that refuses a policy at another revision with a *ConflictError.
func at(revision int64) func(Stored) error {
	return func(s Stored) error {
		if s.Revision == revision {
			return nil
		}
		return &ConflictError{s.Provider, s.Revision, revision}
	}
}

// Update changes the policies of several providers in one transaction: all of them or,
// with an error, none. It reads them once and calls edit with them, at Revision 0 if none
// is set. edit returns as many policies in the same order: nil for an unchanged one, and
// at most 64 others. Each is checked as by Put. If one changes meanwhile, the error is a
// *ConflictError. The result is the stored policies, in the same order.
func (a *Client) Update(ctx context.Context, providers []string, edit func(old []Stored) ([]*quota.Policy, error)) ([]Stored, error) {
	found, err := a.read(ctx, providers)
	if err != nil {
		return nil, err
	}
	all := make([]Stored, len(found))
	for i, c := range found {
		all[i] = c.old
	}
	policies, err := edit(slices.Clone(all))
	if err != nil {
		return nil, err
	}
	if len(policies) != len(all) {
		return nil, fmt.Errorf("admin: edit returned %d policies of %d providers: return one for each, nil for one that stays as it is", len(policies), len(all))
	}
	var changes []*change
	for i, p := range policies {
		if p == nil {
			continue
		}
		if all[i], err = a.prepare(found[i], p, ""); err != nil {
			if len(providers) > 1 {
				err = fmt.Errorf("%s: %w", providers[i], err)
			}
			return nil, err
		}
		changes = append(changes, found[i])
	}
	switch n := len(changes); {
	case n == 0:
		return all, nil
	case n > maxTogether:
		return nil, fmt.Errorf("admin: %d policies to change: one transaction of etcd takes %d (128 operations, two for each); make it several",
			n, maxTogether)
	}
	if err := a.markNew(ctx, changes); err != nil {
		return nil, err
	}
	revision, err := a.commit(ctx, changes...)
	for i, p := range policies {
		if p != nil {
			all[i].Revision = revision
		}
	}
	return all, err
}

// Delete removes a provider's policy and the overrides of its keys, and returns the policy.
// reason is for the history. Instances then issue nothing; they stay registered. If none is
// set, the error is ErrNotFound; if the policy changes at the same moment, it is a
// *ConflictError.
func (a *Client) Delete(ctx context.Context, provider, reason string) (Stored, error) {
	return a.remove(ctx, provider, reason, always)
}

// DeleteIf is Delete if the policy has that revision. Otherwise it changes nothing and
// returns a *ConflictError.
func (a *Client) DeleteIf(ctx context.Context, provider, reason string, revision int64) (Stored, error) {
	return a.remove(ctx, provider, reason, at(revision))
}

func (a *Client) remove(ctx context.Context, provider, reason string, may func(Stored) error) (Stored, error) {
	found, err := a.read(ctx, []string{provider})
	if err != nil {
		return Stored{}, err
	}
	old := found[0].old
	if old.Revision == 0 {
		return old, fmt.Errorf("%s: %w", provider, ErrNotFound)
	}
	if err = may(old); err == nil {
		_, err = a.prepare(found[0], nil, reason)
	}
	if err == nil {
		_, err = a.commit(ctx, found[0])
	}
	return old, err
}

// change is one policy to be changed: all that it depends on, at one revision, and what is
// written.
type change struct {
	key     string
	old     Stored
	raw     []byte                      // of old
	before  []superseded                // policies that instances may still rely on
	oldest  *etcdserverpb.RangeResponse // keys of the oldest records
	was     []protocol.Was              // the limits that it had before, whose counts go on
	cluster uint64                      // that has told all of this
	fresh   bool                        // it brings the first long limits
	ops     []clientv3.Op
	trim    []clientv3.Op // of the oldest records, where there is room for that
	keep    []superseded  // to be given a lease
	// unchanged are conditions beside that of the policy's revision.
	unchanged []clientv3.Cmp
}

// trimmed is how many records a change removes at most: one more than it adds.
const trimmed = 2

// read reads what changes of the providers depend on.
func (a *Client) read(ctx context.Context, providers []string) (all []*change, err error) {
	for i, p := range providers {
		if err := quota.ValidateProvider(p); err != nil {
			return nil, err
		}
		if slices.Contains(providers[:i], p) {
			return nil, fmt.Errorf("admin: two changes of %s in one transaction", p)
		}
	}
	const each = 4
	for chunk := range slices.Chunk(providers, etcdcall.MaxOps/each) {
		var ops []clientv3.Op
		for _, p := range chunk {
			ops = append(ops,
				clientv3.OpGet(a.keys.Policy(p)),
				clientv3.OpGet(a.keys.Superseded(p), clientv3.WithPrefix()),
				clientv3.OpGet(a.keys.History(p), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(trimmed),
					clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
				clientv3.OpGet(a.keys.BudgetsBefore(p)))
		}
		r, err := a.kv.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, classify(ctx, "read the policy of "+strings.Join(chunk, ", "), err)
		}
		for i, p := range chunk {
			of := r.Responses[each*i:]
			kv := etcdcall.KeyIn(of[0])
			was, _ := protocol.ReadWas(etcdcall.KeyIn(of[3]).Value) // what cannot be read is written anew with the next change of windows
			all = append(all, &change{key: a.keys.Policy(p), old: stored(p, kv), raw: kv.Value,
				before: supersededIn(of[1].GetResponseRange().Kvs), oldest: of[2].GetResponseRange(), was: was, cluster: r.Header.ClusterId})
		}
	}
	return all, nil
}

// prepare fills in and checks a policy, nil for none, and makes the change ready, with its
// history record. It returns the policy, without a revision.
func (a *Client) prepare(c *change, p *quota.Policy, reason string) (Stored, error) {
	after, author, put := Stored{Provider: c.old.Provider}, a.o.Author, clientv3.OpDelete(c.key)
	var value []byte
	if p != nil {
		next := p.WithDefaults()
		p = &next
		next.Author, next.Time = cmp.Or(next.Author, author), time.Now().UTC()
		err := next.Validate()
		if err == nil {
			value, err = json.Marshal(next)
		}
		if err != nil {
			return after, err
		}
		author, reason, after.Policy = next.Author, next.Reason, next
		put = clientv3.OpPut(c.key, string(value))
		c.fresh = hasLong(p) && c.old.Problem == nil && !hasLong(&c.old.Policy)
	} else { // a provider that is set again has no overrides of long ago
		c.ops = append(c.ops, clientv3.OpDelete(a.keys.AllOverrides(after.Provider), clientv3.WithPrefix()))
	}
	record, err := a.newRecord(c, value, author, reason, nil)
	if err != nil {
		return after, err
	}
	c.ops = append(c.ops, put, record)
	if err := c.replaceLong(p, a.keys.BudgetsBefore(after.Provider)); err != nil {
		return after, err
	}
	c.trimRecords()
	return after, c.supersede(p, a.keys.Superseded(after.Provider))
}

// replaceLong writes which limits of more than a minute go, so that what was handed out by them counts on.
func (c *change) replaceLong(next *quota.Policy, key string) error {
	var old *quota.Policy
	if c.old.Revision != 0 && c.old.Problem == nil { // what cannot be read was not followed
		old = &c.old.Policy
	}
	_, err := c.writeWas(protocol.ReplaceLong(c.was, old, next, time.Now()), key)
	return err
}

// writeWas writes these in place of those before. It reports whether they are others.
func (c *change) writeWas(was []protocol.Was, key string) (others bool, err error) {
	if slices.Equal(was, c.was) {
		return false, nil
	}
	text, err := protocol.EncodeWas(was)
	c.ops = append(c.ops, clientv3.OpPut(key, text))
	return true, err
}

// trimRecords removes the records that are too many with the change's own.
func (c *change) trimRecords() {
	for i, kv := range c.oldest.Kvs {
		if int64(i) < c.oldest.Count+1-maxRecords {
			c.trim = append(c.trim, clientv3.OpDelete(string(kv.Key)))
		}
	}
}

// supersede checks the next policy, nil for a deletion, against those before it, and adds
// those that the change has to keep.
func (c *change) supersede(next *quota.Policy, folder string) error {
	before := c.before
	for _, s := range before {
		if !s.leased {
			c.keep = append(c.keep, s)
		}
	}
	if p := policyOf(c.raw); p != nil {
		s := superseded{fmt.Sprint(folder, c.old.Revision), false, *p}
		if before = append(before, s); next == nil || !s.covered(next) {
			c.ops = append(c.ops, clientv3.OpPut(s.key, string(c.raw)))
			c.keep = append(c.keep, s)
		}
	}
	if next == nil {
		return nil
	}
	return checkLowering(c.old.Provider, next, before)
}

// hasLong reports whether a policy has long limits, of its own or of keys.
func hasLong(p *quota.Policy) bool {
	long := func(l quota.Limit) bool { return l.Long() }
	return slices.ContainsFunc(p.Limits, long) || slices.ContainsFunc(p.Keys.Limits, long)
}

// markNew marks the providers that get their first long limits, unless they have a mark: nothing of
// these was used yet, so nothing is withheld. A role that may not do this leaves it to the
// instances, which cannot know that.
func (a *Client) markNew(ctx context.Context, all []*change) error {
	var ops []clientv3.Op
	for _, c := range all {
		if !c.fresh {
			continue
		}
		text, err := escrow.Encode(escrow.Mark{Cluster: c.cluster})
		if err != nil {
			return err
		}
		key := a.keys.BudgetMark(c.old.Provider)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{etcdcall.At(key, 0)}, []clientv3.Op{clientv3.OpPut(key, text)}, nil))
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := a.kv.Txn(ctx).Then(ops...).Commit()
	if err = classify(ctx, "mark that nothing is used yet", err); errors.Is(err, ErrPermission) {
		return nil
	}
	return err
}

// commit makes changes together, if none of their policies has changed since they were read.
func (a *Client) commit(ctx context.Context, all ...*change) (int64, error) {
	var (
		unchanged   []clientv3.Cmp
		then, other []clientv3.Op
	)
	for _, c := range all {
		unchanged = append(append(unchanged, etcdcall.At(c.key, c.old.Revision)), c.unchanged...)
		then = append(then, c.ops...)
		other = append(other, clientv3.OpGet(c.key, clientv3.WithKeysOnly()))
	}
	for _, c := range all {
		if len(then)+len(c.trim) <= etcdcall.MaxOps {
			then = append(then, c.trim...)
		}
	}
	r, err := a.kv.Txn(ctx).If(unchanged...).Then(then...).Else(other...).Commit()
	if err != nil {
		what := "change the policy of " + all[0].old.Provider
		if len(all) > 1 {
			what = fmt.Sprintf("change %d policies", len(all))
		}
		if err = classify(ctx, what, err); errors.Is(err, ErrUnreachable) {
			err = fmt.Errorf("%w; the change may have been made: look before you try again: quota-admin history %s", err, all[0].old.Provider)
		}
		return 0, err
	}
	if !r.Succeeded {
		return 0, conflict(all, r.Responses)
	}
	for _, c := range all {
		for _, s := range c.keep {
			a.expire(ctx, s)
		}
	}
	return r.Header.Revision, nil
}

// conflict names a change that another one came before, by the revisions of the policies that etcd has read as
// it compared them.
func conflict(all []*change, read []*etcdserverpb.ResponseOp) (found *ConflictError) {
	for i, c := range all {
		found = &ConflictError{c.old.Provider, etcdcall.KeyIn(read[i]).ModRevision, c.old.Revision}
		if found.Have != found.Want || len(c.unchanged) > 0 {
			break
		}
	}
	return found
}
