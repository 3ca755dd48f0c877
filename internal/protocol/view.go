// Package protocol is what the instances of a fleet tell each other, and what each
// works out from it in the same way: views of a provider and their changes,
// and the spans of time in which shapes count. Package quota has what applications
// and operators need.
package protocol

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// View is a provider's policy and live instances at one etcd revision.
type View struct {
	Revision int64
	// Policy is nil where none is set.
	Policy *quota.Policy
	// PolicyRevision is the revision at which Policy was written.
	PolicyRevision int64
	// Instances are in no particular order; each ID occurs once.
	Instances []Instance
	// Throttle is nil where none is set.
	Throttle *Throttle
	// Overrides are the documents with limits of single keys, by bucket.
	Overrides map[int]*Overrides `json:",omitempty"`
	// Alone says that there will never be another instance: it has budgets to itself.
	Alone bool
	// First says that this process's instance, whose Instance.First is set, was registered
	// by this very revision.
	First bool
}

// Change is what one etcd revision did to a provider's view. Views change by
// exactly one revision at a time; a revision that is skipped would be a hole
// in the proof that the sum stays under the total.
type Change struct {
	Revision int64
	// Policy, if not nil, is the new policy.
	Policy *quota.Policy
	// PolicyDeleted says that the policy was deleted. Policy is then nil.
	PolicyDeleted bool
	// Throttle, if not nil, is the new throttle: an empty one if it cannot be read.
	Throttle *Throttle
	// ThrottleDeleted says that the throttle was deleted, which ends what it held back.
	// Throttle is then nil.
	ThrottleDeleted bool
	// Overrides are the documents that changed, by bucket; nil for one that was deleted.
	Overrides map[int]*Overrides `json:",omitempty"`
	// Put are instances that joined, or whose key was written again.
	Put []Instance
	// Deleted are the IDs of instances whose keys are gone.
	Deleted []string
}

// TakesPart reports whether the instance has a share of a window that starts
// at wall, in nanoseconds since the Unix epoch.
func TakesPart(i *Instance, wall int64) bool {
	start := time.Unix(0, wall)
	return !start.Before(i.From) && (i.Until.IsZero() || start.Before(i.Until))
}
