package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of overrides.
const (
	// OverrideBuckets is how many documents hold a provider's overrides.
	OverrideBuckets = 64
	// MaxOverrides bounds the overrides of a provider. Tools keep to it; instances do not
	// count.
	MaxOverrides = 10_000
	// MaxOverrideWindows bounds the lengths of the windows of all overrides of a provider. An
	// instance counts each key in each of them.
	MaxOverrideWindows = 16
	// MaxOverridesBytes bounds one document.
	MaxOverridesBytes = 64 << 10
)

// Overrides are the limits of single keys in place of those by the policy: one document of a
// provider's. They never change.
type Overrides struct {
	// Keys has the limits by the key's name, shortest window first.
	Keys map[string][]quota.Limit
	// Broken says that the document cannot be read, and that no earlier one is known: its keys
	// have no permits, because the limits meant may be smaller than the policy's.
	Broken bool `json:",omitempty"`
}

// OverrideBucket returns the number of the document that has the override of a key.
func OverrideBucket(key string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum64() % OverrideBuckets)
}

type wireOverrides struct {
	Schema schema            `json:"schema"`
	Keys   map[string]string `json:"keys"`
}

// EncodeOverrides writes a document.
func EncodeOverrides(keys map[string][]quota.Limit) ([]byte, error) {
	w := wireOverrides{Keys: map[string]string{}}
	for name, limits := range keys {
		w.Keys[name] = quota.FormatLimits(limits)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a name may have 256 of them
	err := e.Encode(w)
	return bytes.TrimSpace(b.Bytes()), err
}

// ReadOverrides reads the document of a bucket and validates it.
func ReadOverrides(bucket int, value []byte) (*Overrides, error) {
	var w wireOverrides
	if err := Decode("overrides", value, MaxOverridesBytes, &w); err != nil {
		return nil, err
	}
	o := &Overrides{Keys: make(map[string][]quota.Limit, len(w.Keys))}
	read := map[string][]quota.Limit{} // many keys have the same limits
	for _, name := range slices.Sorted(maps.Keys(w.Keys)) {
		if of := OverrideBucket(name); of != bucket {
			return nil, fmt.Errorf("overrides: key %q belongs to document %02d, not %02d", name, of, bucket)
		}
		text := w.Keys[name]
		if read[text] == nil {
			limits, err := quota.ParseLimits(text)
			if err != nil {
				return nil, fmt.Errorf("overrides: key %q: %w", name, err)
			}
			read[text] = limits
		}
		if o.Keys[name] = read[text]; ValidateOverride(name, read[text]) != nil {
			return nil, fmt.Errorf("overrides: %w", ValidateOverride(name, read[text]))
		}
	}
	return o, nil
}

// ValidateOverride checks a key's name, and limits of it as those of a policy's keys.
func ValidateOverride(name string, limits []quota.Limit) error {
	if err := ValidateKey(name); err != nil {
		return err
	}
	if len(limits) == 0 {
		return errors.New("limits: there are none; delete the override instead")
	}
	p := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: quota.MaxWindow}}, Keys: quota.Keys{Limits: limits}}.WithDefaults()
	if err := p.Validate(); err != nil {
		return fmt.Errorf("key %q: %w", name, err)
	}
	return nil
}

// Override returns the limits of a key by the override that it has.
func (v *View) Override(key string) (limits []quota.Limit, broken bool) {
	o := v.Overrides[OverrideBucket(key)]
	if o == nil {
		return nil, false
	}
	return o.Keys[key], o.Broken
}
