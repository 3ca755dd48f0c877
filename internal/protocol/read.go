package protocol

import (
	"encoding/json"
	"fmt"
	"time"

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

// MaxInstanceBytes bounds the value of an incarnation's key: more than any valid one
// needs. A longer one is refused before it is read.
const MaxInstanceBytes = 4 << 10

// Incarnation is an instance as the value of its key, without the ID, which is in the
// key.
type Incarnation Instance

// MarshalJSON writes the value.
func (i Incarnation) MarshalJSON() ([]byte, error) {
	type plain Incarnation
	i.Started, i.From, i.Until = i.Started.UTC(), i.From.UTC(), i.Until.UTC()
	return json.Marshal(struct {
		Schema schema `json:"schema"`
		plain
	}{plain: plain(i)})
}

// ReadInstance reads the value of an incarnation's key and validates it. Fields that it
// does not know are ignored, a schema that it does not know is refused.
func ReadInstance(id string, value []byte) (Instance, error) {
	i := Instance{ID: id}
	if err := Decode("instance", value, MaxInstanceBytes, &i); err != nil {
		return i, err
	}
	return i, i.Validate()
}

// problems are all that is wrong with a value.
type problems []error

func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// dated reports whether t lies far enough from the ends of an int64 of nanoseconds
// that sums with settle times and windows fit.
func dated(t time.Time) bool {
	return t.Unix() >= 0 && t.UTC().Year() < 2200
}

// schema is the version of a value in etcd: it is written as this one's, and Decode checks
// it.
type schema struct{}

// MarshalJSON implements json.Marshaler.
func (schema) MarshalJSON() ([]byte, error) { return json.Marshal(quota.Schema) }

// UnmarshalJSON implements json.Unmarshaler.
func (schema) UnmarshalJSON([]byte) error { return nil }

// Decode reads a value of at most so many bytes, of the schema that this version knows.
func Decode(what string, value []byte, most int, into any) error {
	if len(value) > most {
		return fmt.Errorf("%s: %d bytes are more than the most, %d", what, len(value), most)
	}
	var v struct {
		Schema int `json:"schema"`
	}
	err := json.Unmarshal(value, &v)
	if err == nil && v.Schema != quota.Schema {
		err = fmt.Errorf("schema %d is not the one this version knows, %d", v.Schema, quota.Schema)
	}
	if err == nil {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
