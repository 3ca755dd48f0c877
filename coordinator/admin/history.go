package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// maxRecords is how many history records of a provider are kept.
const maxRecords = 100

// Record is one change of a policy, as the history keeps it.
type Record struct {
	Time     time.Time // by the author's clock
	Author   string
	Reason   string
	Revision int64 // of the change
	// Old and New are nil where no policy was set, or where it could not be read.
	Old, New    *quota.Policy
	OldRevision int64 // 0 where none was set
	// Keys has the overrides of single keys that were changed, by name, before and after: limits,
	// and owners= if these differ too; empty where the policy's count. Old and New are then the
	// same.
	Keys map[string][2]string
	// Problem is the reason why the record, or a policy in it, cannot be read, or nil; it
	// names the key.
	Problem error
}

// maxReasonBytes bounds a reason, also that of a policy.
const maxReasonBytes = 1 << 10

// maxRecordBytes bounds a record: two policies, changes of single keys, author, time and reason.
const maxRecordBytes = 2*quota.MaxPolicyBytes + maxChangeRecordBytes + 16<<10

// recordsAtOnce is how many records one read returns. Somebody who may write the
// history may have written values as large as etcd takes.
const recordsAtOnce = 25

type wireRecord struct {
	Schema      int             `json:"schema"`
	Author      string          `json:"author"`
	Reason      string          `json:"reason,omitempty"`
	Time        time.Time       `json:"time"`
	OldRevision int64           `json:"old_revision"`
	Old         json.RawMessage `json:"old,omitempty"`
	New         json.RawMessage `json:"new,omitempty"`
	// Keys has the limits before and after of each key whose override was changed; empty where
	// the policy's count.
	Keys map[string][2]string `json:"keys,omitempty"`
}

// newRecord returns the operation that writes the record of a change to a value.
func (a *Client) newRecord(c *change, value []byte, who, why string, keys map[string][2]string) (clientv3.Op, error) {
	if len(why) > maxReasonBytes {
		return clientv3.Op{}, fmt.Errorf("admin: a reason of %d bytes: at most %d", len(why), maxReasonBytes)
	}
	old := c.raw
	if !json.Valid(old) || len(old) > quota.MaxPolicyBytes {
		old = nil // written by hand, and broken
	}
	now := time.Now().UTC()
	b, err := json.Marshal(wireRecord{
		Schema: quota.Schema, Author: who, Reason: why, Time: now,
		OldRevision: c.old.Revision, Old: old, New: value, Keys: keys,
	})
	return clientv3.OpPut(a.keys.Record(c.old.Provider, now, rand.Text()[:8]), string(b)), err
}

// overrideRecord returns the operation that writes the record of changes of single keys.
func (a *Client) overrideRecord(c *change, changes map[string]protocol.KeyChange, why string) (clientv3.Op, error) {
	keys, size := map[string][2]string{}, 0
	for name, k := range changes {
		keys[name] = [2]string{k.Old.String(), k.New.String()}
		text, _ := json.Marshal(name) // a string: there is nothing to fail
		size += len(text) + len(keys[name][0]) + len(keys[name][1]) + len(`:["",""],`)
	}
	if size > maxChangeRecordBytes {
		return clientv3.Op{}, fmt.Errorf("admin: %s: the history record of %d changes takes %d bytes: at most %d; make it several changes", c.old.Provider, len(changes), size, maxChangeRecordBytes)
	}
	return a.newRecord(c, c.raw, a.o.Author, why, keys)
}

// History returns the last 100 changes of a provider's policy, newest first, also after its
// deletion. It is empty for a provider that never had one. A record that cannot be read has
// a Problem.
func (a *Client) History(ctx context.Context, provider string) ([]Record, error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, err
	}
	var records []Record
	newest, limit := int64(0), int64(recordsAtOnce) // by creation; 0: any
	for more := true; more && len(records) < maxRecords; {
		r, err := a.kv.Get(ctx, a.keys.History(provider), clientv3.WithPrefix(), clientv3.WithLimit(limit),
			clientv3.WithMaxCreateRev(newest), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
		if etcdcall.TooLarge(err) && limit > 1 {
			limit = 1
			continue
		}
		if err != nil {
			return nil, classify(ctx, "read the history of "+provider, err)
		}
		for _, kv := range r.Kvs {
			records = append(records, recordOf(string(kv.Key), kv.Value, kv.CreateRevision))
			newest = kv.CreateRevision - 1
		}
		more = r.More
	}
	return records, nil
}

func recordOf(key string, value []byte, revision int64) Record {
	r := Record{Revision: revision}
	var w wireRecord
	if err := protocol.Decode("record", value, maxRecordBytes, &w); err != nil {
		r.Problem = fmt.Errorf("the record %q cannot be read: %w", key, err)
		return r
	}
	r.Time, r.Author, r.Reason, r.OldRevision = w.Time, w.Author, w.Reason, w.OldRevision
	r.Old, r.New = policyOf(w.Old), policyOf(w.New)
	for name, both := range w.Keys {
		if r.Keys == nil {
			r.Keys = map[string][2]string{}
		}
		for i, text := range both { // one that cannot be read shows as none
			if _, err := protocol.ParseOverride(text); err != nil {
				both[i] = ""
			}
		}
		r.Keys[name] = both
	}
	if r.New == nil && len(w.New) > 0 {
		r.Problem = fmt.Errorf("the new policy in the record %q cannot be read", key)
	}
	return r
}

func policyOf(raw json.RawMessage) *quota.Policy {
	var p quota.Policy
	if len(raw) == 0 || json.Unmarshal(raw, &p) != nil {
		return nil
	}
	return &p
}
