package view

import (
	"fmt"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Reader reads the values of keys.
type Reader struct {
	Policy   func(value []byte) (*quota.Policy, error)
	Instance func(id string, value []byte) (quota.Instance, error)
	Level    func(value []byte) (*protocol.Level, error)
}

// ReadBy makes the tracker read values by r instead of those of package
// protocol, which r calls in the end: a simulation of many instances reads
// every value once for all of them. It survives List.
func (t *Tracker) ReadBy(r *Reader) { t.read = r }

func (t *Tracker) policyOf(value []byte) (*quota.Policy, error) {
	if t.read != nil {
		return t.read.Policy(value)
	}
	return protocol.ReadPolicy(value)
}

// instance reads an instance's key. One that cannot be read takes part with the
// defaults: that enlarges nobody's share.
func (t *Tracker) instance(k Key) quota.Instance {
	t.instances[k.ID] = k.Revision
	read := protocol.ReadInstance
	if t.read != nil {
		read = t.read.Instance
	}
	i, err := read(k.ID, k.Value)
	delete(t.bad, k.ID)
	if err != nil {
		t.bad[k.ID] = fmt.Errorf("the key of instance %q cannot be read, it takes part all the same: %w", k.ID, err)
		return quota.Instance{ID: k.ID, Weight: 1}
	}
	return i
}
