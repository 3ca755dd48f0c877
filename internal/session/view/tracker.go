// Package view follows the keys of providers in etcd through their revisions. A Tracker for
// each provider turns etcd's answers into views that change by one revision at a time. One
// Line turns them into proofs that all these views are recent.
//
// It is pure: no clock, no I/O, no etcd types. It knows which answers of etcd mean
// something:
//
//   - The position in the watch is the revision of the last event applied, or of
//     a progress notification taken in the stream's order. The header of an
//     event response, or of the answer that a watch was created, carries the
//     store's revision, not the delivered one.
//   - A linearizable read that was sent at r and returned revision R says that
//     everything committed before r has a revision of at most R. Once the
//     position has reached R, the view contains all of that.
//   - A revision that went backwards, or another cluster, is a store restored from
//     a backup: the history has a gap.
package view

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// Kind says what a key holds.
type Kind uint8

// The kinds of keys under a provider.
const (
	Other     Kind = iota // of no interest to this version
	Policy                // the policy
	Instance              // one incarnation
	Throttle              // what the provider takes
	Overrides             // one document of overrides of keys
)

// Key is one key under a provider, as etcd has it at one revision.
type Key struct {
	Kind     Kind
	ID       string // the incarnation, if Kind is Instance
	Bucket   int    // if Kind is Overrides
	Value    []byte
	Revision int64 // of the change that made it so
	Deleted  bool  // only in events
}

// Tracker follows one provider. The zero Tracker knows nothing; List starts it.
// It is not safe for concurrent use.
type Tracker struct {
	revision  int64            // newest that changed the view
	instances map[string]int64 // revision of every instance's key
	documents [Throttle + 1]document
	overrides [protocol.OverrideBuckets]document
	bad       map[string]error // instances whose keys cannot be read
}

// document is what is known of the key of a policy, a throttle or overrides.
type document struct {
	revision int64 // 0 without one
	bad      error // why it cannot be read, or not all of it obeyed
}

// List starts again from a listing of all keys under the provider, read at a
// revision. The view that it returns is the beginning of a history.
func (t *Tracker) List(revision int64, keys []Key) protocol.View {
	*t = Tracker{revision: revision, instances: map[string]int64{}, bad: map[string]error{}}
	c := protocol.Change{Revision: revision}
	for _, k := range keys {
		t.add(&c, k)
	}
	for bucket := range t.overrides {
		if t.overrides[bucket].bad != nil {
			t.putOverrides(&c, bucket, &protocol.Overrides{Broken: true})
		}
	}
	v := protocol.View{Revision: revision, Policy: c.Policy, Throttle: c.Throttle, Instances: c.Put, Overrides: c.Overrides}
	if v.Policy != nil {
		v.PolicyRevision = t.documents[Policy].revision
	}
	return v
}

// Events takes the events of one watch response, in order, and returns a change
// for every revision that is new. A revision that was seen before is ignored.
func (t *Tracker) Events(keys []Key) (changes []protocol.Change) {
	for rest := keys; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Revision == rest[0].Revision {
			n++
		}
		keys, rest = rest[:n], rest[n:]
		if keys[0].Revision <= t.revision {
			continue
		}
		c := protocol.Change{Revision: keys[0].Revision}
		for _, k := range keys {
			t.add(&c, k)
		}
		changes, t.revision = append(changes, c), c.Revision
	}
	return changes
}

// add adds an event to the change of its revision.
func (t *Tracker) add(c *protocol.Change, k Key) {
	switch k.Kind {
	case Instance:
		t.addInstance(c, k)
	case Policy: // a typo must not stop the fleet
		p := read(&t.documents[Policy], k, protocol.ReadPolicy, "policy", "the last one that can be stays in force")
		if p != nil || k.Deleted {
			c.Policy, c.PolicyDeleted = p, k.Deleted
		}
		if p != nil && len(p.Ignored) > 0 {
			t.documents[Policy].bad = errors.New(cause.Went(p, k.Revision))
		}
	case Throttle:
		c.Throttle = read(&t.documents[Throttle], k, protocol.ReadThrottle, "throttle", "it pauses nobody")
		if c.ThrottleDeleted = k.Deleted; c.Throttle == nil && !k.Deleted {
			c.Throttle = new(protocol.Throttle)
		}
	case Overrides:
		document := func(value []byte) (*protocol.Overrides, error) { return protocol.ReadOverrides(k.Bucket, value) }
		name := fmt.Sprintf("document %02d with overrides of keys", k.Bucket)
		if o := read(&t.overrides[k.Bucket], k, document, name, "the last one that can be stays in force"); o != nil || k.Deleted {
			t.putOverrides(c, k.Bucket, o)
		}
	case Other:
	}
}

// putOverrides adds a document, nil for one that is deleted, to a change.
func (t *Tracker) putOverrides(c *protocol.Change, bucket int, o *protocol.Overrides) {
	if c.Overrides == nil {
		c.Overrides = map[int]*protocol.Overrides{}
	}
	c.Overrides[bucket] = o
}

// Has reports whether the view has an incarnation.
func (t *Tracker) Has(id string) bool { _, ok := t.instances[id]; return ok }

// IDs returns the incarnations that the view has, in no order.
func (t *Tracker) IDs() []string { return slices.Collect(maps.Keys(t.instances)) }

// Instances returns how many incarnations the view has.
func (t *Tracker) Instances() int { return len(t.instances) }

// Problem returns what in the keys cannot be read or obeyed, or nil.
func (t *Tracker) Problem() error {
	var errs []error
	for _, d := range slices.Concat(t.documents[:], t.overrides[:]) {
		errs = append(errs, d.bad)
	}
	for n, id := range slices.Sorted(maps.Keys(t.bad)) {
		if errs = append(errs, t.bad[id]); n > 0 {
			break // enough to know
		}
	}
	return cause.Together(errs...)
}
