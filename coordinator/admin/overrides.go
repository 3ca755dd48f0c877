package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// overrides are a provider's, as they were read.
type overrides struct {
	protocol.KeyOverrides
	documents [protocol.OverrideBuckets]document
	revision  int64 // of the reading
}

// document is one document of overrides as it is stored.
type document struct {
	revision int64 // 0: it is not set
	bad      error
}

// Bounds of what one change of overrides writes: together less than a request to etcd takes.
const (
	maxWrittenBytes      = 768 << 10 // of documents
	maxChangeRecordBytes = 448 << 10 // of the record, without the policy
)

// Overrides implements protocol.Inspector.
func (i *inspector) Overrides(ctx context.Context, provider string) (protocol.KeyOverrides, error) {
	o, _, err := (*Client)(i).readOverrides(ctx, provider)
	return o.KeyOverrides, err
}

// SetOverrides implements protocol.Inspector.
func (i *inspector) SetOverrides(ctx context.Context, provider, reason string, edit func(old protocol.KeyOverrides) (map[string]*protocol.Override, error)) (map[string]protocol.KeyChange, error) {
	a := (*Client)(i)
	o, c, err := a.readOverrides(ctx, provider)
	if err != nil {
		return nil, err
	}
	edited, err := edit(o.KeyOverrides)
	if err != nil {
		return nil, err
	}
	next, changes := o, map[string]protocol.KeyChange{}
	next.Keys = maps.Clone(o.Keys)
	for _, name := range slices.Sorted(maps.Keys(edited)) {
		was, is := o.Keys[name], edited[name]
		if is != nil {
			is = &protocol.Override{Limits: quota.Policy{Limits: is.Limits}.WithDefaults().Limits, Owners: is.Owners} // in order
		}
		if bad := o.documents[protocol.OverrideBucket(name)].bad; bad != nil {
			return nil, fmt.Errorf("admin: key %q: %w; delete that key of etcd first, and set its overrides again", name, bad)
		}
		if was.Equal(is) {
			continue
		}
		if err := a.checkOverride(&o.Policy.Policy, name, is); err != nil {
			return nil, err
		}
		if changes[name] = (protocol.KeyChange{Old: was, New: is}); is == nil {
			delete(next.Keys, name)
		} else {
			next.Keys[name] = is
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if n := len(next.Keys); n > protocol.MaxOverrides && n > len(o.Keys) {
		return nil, fmt.Errorf("admin: %s: %d overrides: at most %d; delete some, or change the limits of all keys", provider, n, protocol.MaxOverrides)
	}
	if n := windowsOf(next.Keys); n > protocol.MaxOverrideWindows && n > windowsOf(o.Keys) {
		return nil, fmt.Errorf("admin: %s: overrides with windows of %d lengths: at most %d; use the same windows for several keys", provider, n, protocol.MaxOverrideWindows)
	}
	if err := a.prepareOverrides(c, &o, &next, changes, reason); err != nil {
		return nil, err
	}
	if err := a.replaceLongOfKeys(c, changes); err != nil {
		return nil, err
	}
	c.fresh = !hasLong(&o.Policy.Policy) && windowsAbove(o.Keys) == 0 && windowsAbove(next.Keys) > 0
	if err := a.markNew(ctx, []*change{c}); err != nil {
		return nil, err
	}
	_, err = a.commit(ctx, c)
	return changes, err
}

// replaceLongOfKeys writes which limits of more than a minute go that single keys have had, so that what was handed out
// by them counts on. Then the policy is written anew as it is: nobody takes permits by the overrides before, since
// whoever takes some does so on the condition that the policy is as it was read.
func (a *Client) replaceLongOfKeys(c *change, changes map[string]protocol.KeyChange) error {
	was := c.was
	if c.old.Problem == nil { // else nobody follows the policy
		was = protocol.ReplaceLongOfKeys(was, &c.old.Policy, changes, time.Now())
	}
	others, err := c.writeWas(was, a.keys.BudgetsBefore(c.old.Provider))
	if others {
		c.ops = append(c.ops, clientv3.OpPut(c.key, string(c.raw)))
	}
	return err
}

// windowsOf returns how many lengths the windows of overrides have.
func windowsOf(all map[string]*protocol.Override) int {
	lengths := map[time.Duration]bool{}
	for _, o := range all {
		for _, l := range o.Limits {
			lengths[l.Window] = true
		}
	}
	return len(lengths)
}

// windowsAbove returns how many limits of overrides are long ones.
func windowsAbove(all map[string]*protocol.Override) (n int) {
	for _, o := range all {
		for _, l := range o.Limits {
			if l.Long() {
				n++
			}
		}
	}
	return n
}

// checkOverride checks the override of a key, nil if it is deleted, against the policy.
func (a *Client) checkOverride(p *quota.Policy, name string, own *protocol.Override) error {
	if own == nil {
		return nil
	}
	if err := protocol.ValidateOverride(name, own); err != nil {
		return err
	}
	with := p.Clone()
	with.Keys = own.In(with.Keys)
	if err := with.Validate(); err != nil {
		return fmt.Errorf("key %q: %w", name, err)
	}
	return nil
}

// readOverrides reads the overrides of a provider, and what a change of them depends on.
func (a *Client) readOverrides(ctx context.Context, provider string) (o overrides, c *change, err error) {
	found, err := a.read(ctx, []string{provider})
	if err != nil {
		return o, nil, err
	}
	c, o.Keys = found[0], map[string]*protocol.Override{}
	if o.Policy = protocol.Stored(c.old); o.Policy.Revision == 0 {
		return o, c, fmt.Errorf("%s: %w", provider, ErrNotFound)
	}
	r, err := a.kv.Get(ctx, a.keys.AllOverrides(provider), clientv3.WithPrefix(), clientv3.WithLimit(2*protocol.OverrideBuckets))
	if err != nil {
		return o, c, classify(ctx, "read the overrides of "+provider, err)
	}
	o.revision = r.Header.Revision
	var problems []error
	for _, kv := range r.Kvs {
		bucket, ok := a.keys.BucketOf(provider, string(kv.Key))
		if !ok {
			continue
		}
		d := &o.documents[bucket]
		d.revision = kv.ModRevision
		read, err := protocol.ReadOverrides(bucket, kv.Value)
		if err != nil {
			d.bad = fmt.Errorf("the document %q cannot be read: %w", kv.Key, err)
			problems = append(problems, d.bad)
			continue
		}
		maps.Copy(o.Keys, read.Keys)
	}
	o.Problem = errors.Join(problems...)
	return o, c, nil
}

// prepareOverrides makes a change ready: the documents that differ, on the condition that
// neither the policy nor any document is another than was read, and the record.
func (a *Client) prepareOverrides(c *change, old, next *overrides, changes map[string]protocol.KeyChange, reason string) error {
	provider := c.old.Provider
	if len(old.Policy.Policy.Keys.Limits) == 0 && slices.ContainsFunc(slices.Collect(maps.Values(changes)), func(k protocol.KeyChange) bool { return k.New != nil }) {
		return fmt.Errorf("admin: %s has no limits by key: add some with quota-admin set %[1]s LIMITS --keys 80/s", provider)
	}
	var buckets [protocol.OverrideBuckets]map[string]*protocol.Override
	for name := range changes {
		buckets[protocol.OverrideBucket(name)] = map[string]*protocol.Override{}
	}
	for name, own := range next.Keys {
		if of := buckets[protocol.OverrideBucket(name)]; of != nil {
			of[name] = own
		}
	}
	record, err := a.overrideRecord(c, changes, reason)
	if err != nil {
		return err
	}
	c.ops = append(c.ops, record)
	c.trimRecords()
	// The first compares all documents that there are; the others one each, also if it is gone.
	folder := a.keys.AllOverrides(provider)
	c.unchanged = append(c.unchanged, clientv3.Compare(clientv3.ModRevision(folder), "<", old.revision+1).WithPrefix())
	written := 0
	for bucket, of := range buckets {
		if of == nil {
			continue
		}
		key := a.keys.Overrides(provider, bucket)
		c.unchanged = append(c.unchanged, etcdcall.At(key, old.documents[bucket].revision))
		if len(of) == 0 {
			c.ops = append(c.ops, clientv3.OpDelete(key))
			continue
		}
		text, err := protocol.EncodeOverrides(of)
		if err != nil {
			return err
		}
		if n := len(text); n > protocol.MaxOverridesBytes {
			return fmt.Errorf("admin: %s: the %d overrides of document %02d, into which a hash of their names puts them, take %d bytes: at most %d; use shorter names or fewer overrides",
				provider, len(of), bucket, n, protocol.MaxOverridesBytes)
		}
		written += len(text)
		c.ops = append(c.ops, clientv3.OpPut(key, string(text)))
	}
	if written > maxWrittenBytes {
		return fmt.Errorf("admin: %s: the documents of %d changes take %d bytes: one transaction takes %d; make it several", provider, len(changes), written, maxWrittenBytes)
	}
	return nil
}
