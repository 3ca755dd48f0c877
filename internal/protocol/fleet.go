package protocol

import (
	"context"
	"encoding/json"

	"github.com/quotient-limiter/quotient/quota"
)

// Inspector is an admin.Client as this module's commands see it.
type Inspector interface {
	// Registered returns the providers that have instances, with a policy or without, sorted.
	Registered(ctx context.Context) ([]string, error)
	// Fleet returns a provider's policy, live instances and reports.
	Fleet(ctx context.Context, provider string) (Fleet, error)
	// Ended returns what the keys of instances said when they were deleted. The provider had these instances at the
	// revision there, and has them no more at the revision gone. The result lacks those of which etcd does not tell,
	// as its history may be compacted.
	Ended(ctx context.Context, provider string, there, gone int64, ids []string) (map[string]Instance, error)
	// Throttle returns a provider's throttle; nil if there is none, or it cannot be read.
	Throttle(ctx context.Context, provider string) (*Throttle, error)
	// Overrides returns the overrides of single keys of a provider, or admin.ErrNotFound if
	// that has no policy.
	Overrides(ctx context.Context, provider string) (KeyOverrides, error)
	// SetOverrides changes the overrides of single keys of a provider in one transaction: all of
	// them or, with an error, none. It calls edit with the overrides that there are. edit
	// returns the changes by the key's name: a new override, or nil to delete it. The
	// result is what has changed; nothing is written if that is nothing. The same transaction
	// writes the history record. The provider must have limits by key unless all are deleted.
	// The keys' names and limits must be valid, and there may be MaxOverrides of them. If the
	// policy or an override changes meanwhile, the error is a *admin.ConflictError.
	SetOverrides(ctx context.Context, provider, reason string, edit func(old KeyOverrides) (map[string]*Override, error)) (map[string]KeyChange, error)
}

// KeyOverrides are what single keys of a provider have in place of that which its policy has
// for each key.
type KeyOverrides struct {
	// Policy is the provider's, whose Keys.Limits count for all other keys.
	Policy Stored
	// Keys has the override of each key by its name.
	Keys map[string]*Override
	// Problem says which documents cannot be read, or is nil. Keys lacks theirs.
	Problem error
}

// KeyChange is the change of the override of one key; nil where it has none.
type KeyChange struct {
	Old, New *Override
}

// Stored is an admin.Stored.
type Stored struct {
	Provider string
	Policy   quota.Policy
	Revision int64
	Problem  error
}

// ReadStored reads the value of a policy's key at a revision, 0 if there is none. A value that cannot
// be used is a Problem.
func ReadStored(provider string, value []byte, revision int64) Stored {
	s := Stored{Provider: provider, Revision: revision}
	if revision == 0 {
		return s
	}
	if s.Problem = json.Unmarshal(value, &s.Policy); s.Problem == nil {
		s.Problem = s.Policy.Validate()
	}
	return s
}

// Fleet is a provider's policy, its instances and their reports, all at one
// revision.
type Fleet struct {
	Provider string
	Revision int64
	// Policy is as stored; its Revision is 0 where none is set.
	Policy Stored
	// Throttle is nil where none is set, or where it cannot be read.
	Throttle *Throttle
	// Budgets are the limits of more than a minute, with the permits of the running
	// windows that nobody has taken; empty if they cannot be read.
	Budgets []BudgetUse
	// KeysWithheld are the long limits of which a restore withholds the running window of each key, until an operator
	// gives the key's count, or vouches for all keys.
	KeysWithheld []BudgetUse
	// Instances are sorted by name and incarnation. To a name that several have, the end of each
	// incarnation is added.
	Instances []InstanceStatus
	// Left are the instances that left with a debt within the last hour, sorted likewise:
	// name, incarnation and last report.
	Left []InstanceStatus
}

// View returns the fleet as its instances see it. A policy that cannot be used
// is left out, as by an instance that has just joined.
func (f *Fleet) View() View {
	v := View{Revision: f.Revision, Throttle: f.Throttle}
	if f.Policy.Revision != 0 && f.Policy.Problem == nil {
		p := f.Policy.Policy
		v.Policy, v.PolicyRevision = &p, f.Policy.Revision
	}
	for _, s := range f.Instances {
		v.Instances = append(v.Instances, s.Instance)
	}
	return v
}

// InstanceStatus is one live instance as shown to operators.
type InstanceStatus struct {
	Instance Instance
	// Share is its share of the shortest limit's window that runs now, by the
	// view; ShareKnown is false without a policy in force, or without a short limit.
	Share      int64
	ShareKnown bool
	// Report is the instance's newest report, or nil.
	Report *Report
	// Problem is the reason why its key or report cannot be read, or the key cannot be an
	// instance's own; nil if there is none.
	Problem error
}
