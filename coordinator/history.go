package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// MaxRecords is how many history records of a provider are kept.
const MaxRecords = 100

// Record is one change of a policy, as the history keeps it.
type Record struct {
	Time     time.Time // by the author's clock
	Author   string
	Reason   string
	Revision int64 // of the change
	// Old and New are nil where no policy was set, or where it could not be read.
	Old, New    *quota.Policy
	OldRevision int64 // 0 where none was set
}

type wireRecord struct {
	Schema      int             `json:"schema"`
	Author      string          `json:"author"`
	Reason      string          `json:"reason,omitempty"`
	Time        time.Time       `json:"time"`
	OldRevision int64           `json:"old_revision"`
	Old         json.RawMessage `json:"old,omitempty"`
	New         json.RawMessage `json:"new,omitempty"`
}

// newRecord returns the operation that writes the record of a change.
func (a *Admin) newRecord(provider string, oldRevision int64, old, value []byte, who, why string) (clientv3.Op, error) {
	if len(why) > quota.MaxReasonBytes {
		return clientv3.Op{}, fmt.Errorf("coordinator: a reason of %d bytes: at most %d", len(why), quota.MaxReasonBytes)
	}
	if !json.Valid(old) || len(old) > quota.MaxPolicyBytes {
		old = nil // written by hand, and broken
	}
	now := time.Now().UTC()
	b, err := json.Marshal(wireRecord{
		Schema: quota.Schema, Author: who, Reason: why, Time: now,
		OldRevision: oldRevision, Old: old, New: value,
	})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("coordinator: write the history of %s: %w", provider, err)
	}
	return clientv3.OpPut(a.keys.record(provider, now, rand.Text()[:8]), string(b)), nil
}

// History returns the changes of a provider's policy, newest first. Records
// that cannot be read are left out.
func (a *Admin) History(ctx context.Context, provider string) ([]Record, error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, err
	}
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	// A few more than are kept, where trimming lags behind.
	r, err := a.client.Get(c, a.keys.history(provider), clientv3.WithPrefix(), clientv3.WithLimit(2*MaxRecords),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err != nil {
		return nil, classify(ctx, "read the history of "+provider, err)
	}
	var records []Record
	for _, kv := range r.Kvs {
		var w wireRecord
		if json.Unmarshal(kv.Value, &w) != nil {
			continue
		}
		records = append(records, Record{
			Time: w.Time, Author: w.Author, Reason: w.Reason, Revision: kv.CreateRevision,
			Old: policyOf(w.Old), New: policyOf(w.New), OldRevision: w.OldRevision,
		})
	}
	slices.SortStableFunc(records, func(x, y Record) int { return cmp.Compare(y.Revision, x.Revision) })
	return records[:min(len(records), MaxRecords)], nil
}

func policyOf(raw json.RawMessage) *quota.Policy {
	var p quota.Policy
	if len(raw) == 0 || json.Unmarshal(raw, &p) != nil {
		return nil
	}
	return &p
}

// trim deletes the oldest records beyond MaxRecords. It is only housekeeping:
// the change is made, and the next one trims again.
func (a *Admin) trim(ctx context.Context, provider string) {
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.Get(c, a.keys.history(provider), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(MaxRecords+50))
	if err != nil || len(r.Kvs) <= MaxRecords {
		return
	}
	var ops []clientv3.Op
	for _, kv := range r.Kvs[MaxRecords:] {
		ops = append(ops, clientv3.OpDelete(string(kv.Key)))
	}
	_, _ = a.client.Txn(c).Then(ops...).Commit()
}
