package view

import (
	"encoding/json"
	"fmt"

	"github.com/quotient-limiter/quotient/quota"
)

// Reader reads the values of keys.
type Reader struct {
	Policy   func(value []byte) (*quota.Policy, error)
	Instance func(id string, value []byte) (quota.Instance, error)
	Level    func(value []byte) (*quota.Level, error)
}

// ReadBy makes the tracker read values by r instead of ReadPolicy, ReadInstance
// and ReadLevel, which r calls in the end: a simulation of many instances reads
// every value once for all of them. It survives List.
func (t *Tracker) ReadBy(r *Reader) { t.read = r }

// bounded returns an error for a value that is too long. The end of such a value may
// be missing.
func bounded(what string, value []byte, most int) error {
	if len(value) > most {
		return fmt.Errorf("%s: %d bytes are more than the most, %d", what, len(value), most)
	}
	return nil
}

func read(what string, value []byte, most int, into any) error {
	if err := bounded(what, value, most); err != nil {
		return err
	}
	return json.Unmarshal(value, into)
}

// ReadPolicy reads a policy, with its defaults, and validates it.
func ReadPolicy(value []byte) (*quota.Policy, error) {
	var p quota.Policy
	if err := read("policy", value, quota.MaxPolicyBytes, &p); err != nil {
		return nil, err
	}
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// ReadInstance reads and validates what matters for shares in the value of an
// incarnation's key.
func ReadInstance(id string, value []byte) (quota.Instance, error) {
	if err := bounded("instance", value, quota.MaxInstanceBytes); err != nil {
		return quota.Instance{}, err
	}
	i, err := quota.ReadInstance(id, value)
	if err == nil {
		err = i.Validate()
	}
	return i, err
}

// ReadLevel reads and validates a level.
func ReadLevel(value []byte) (*quota.Level, error) {
	var l quota.Level
	if err := read("level", value, quota.MaxLevelBytes, &l); err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return &l, nil
}

func (t *Tracker) policyOf(value []byte) (*quota.Policy, error) {
	if t.read != nil {
		return t.read.Policy(value)
	}
	return ReadPolicy(value)
}

// instance reads an instance's key. One that cannot be read takes part with the
// defaults: that enlarges nobody's share.
func (t *Tracker) instance(k Key) quota.Instance {
	t.instances[k.ID] = k.Revision
	read := ReadInstance
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
