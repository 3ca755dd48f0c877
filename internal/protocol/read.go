package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/quotient-limiter/quotient/quota"
)

// ReadPolicy reads a policy, with its defaults, and validates it.
func ReadPolicy(value []byte) (*quota.Policy, error) {
	var p quota.Policy
	if err := p.UnmarshalJSON(value); err != nil {
		return nil, err
	}
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// ReadInstance reads the value of an incarnation's key and validates it.
func ReadInstance(id string, value []byte) (quota.Instance, error) {
	i := quota.Instance{ID: id}
	err := i.UnmarshalJSON(value)
	if err == nil {
		err = i.Validate()
	}
	return i, err
}

// ReadLevel reads and validates a level. Fields that it does not know are ignored, a
// schema that it does not know is refused.
func ReadLevel(value []byte) (*Level, error) {
	if len(value) > MaxLevelBytes {
		return nil, fmt.Errorf("level: %d bytes are more than the most, %d", len(value), MaxLevelBytes)
	}
	type plain Level
	var w struct {
		Schema int `json:"schema"`
		plain
	}
	err := json.Unmarshal(value, &w)
	if w.Schema != quota.Schema && (err == nil || w.Schema != 0) {
		err = fmt.Errorf("schema %d is not the one this version knows, %d", w.Schema, quota.Schema)
	}
	if err != nil {
		return nil, fmt.Errorf("level: %w", err)
	}
	l := Level(w.plain)
	return &l, l.Validate()
}
