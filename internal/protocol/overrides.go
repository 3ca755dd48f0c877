package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// Keys has the overrides by the key's name.
	Keys map[string]*Override
	// Broken says that the document cannot be read, and that no earlier one is known: its keys
	// have no permits, because the limits meant may be smaller than the policy's.
	Broken bool `json:",omitempty"`
}

// Override is what one key has in place of the policy's. It never changes.
type Override struct {
	// Limits are those of the key, shortest window first.
	Limits []quota.Limit
	// Owners is as quota.Keys.Owners, for this key; nil: the policy's number.
	Owners *int64 `json:",omitempty"`
}

// ownersPart begins the part of an override's text that has the number of owners.
const ownersPart = " owners="

// String returns the text of an override, as in "400/s owners=3"; empty for nil.
func (o *Override) String() string {
	switch {
	case o == nil:
		return ""
	case o.Owners == nil:
		return quota.FormatLimits(o.Limits)
	}
	return quota.FormatLimits(o.Limits) + ownersPart + strconv.FormatInt(*o.Owners, 10)
}

// ParseOverride reads the text of an override. It does not validate the numbers.
func ParseOverride(text string) (*Override, error) {
	limits, owners, owned := strings.Cut(text, ownersPart)
	var o Override
	var err error
	if o.Limits, err = quota.ParseLimits(limits); err != nil || !owned {
		return &o, err
	}
	n, err := strconv.ParseInt(owners, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("owners %q: want a number, as in 400/s owners=3", owners)
	}
	o.Owners = &n
	return &o, nil
}

// In returns what a key has by the policy's keys and its override, which may be nil.
func (o *Override) In(k quota.Keys) quota.Keys {
	if o == nil {
		return k
	}
	k.Limits = WithPhases(o.Limits, k.Limits)
	if o.Owners != nil {
		k.Owners = *o.Owners
	}
	return k
}

// WithPhases returns the limits of an override: of windows as long as one of the policy's they begin when
// that does, or slide, since all keys are counted in the same windows.
func WithPhases(limits, policy []quota.Limit) []quota.Limit {
	all := slices.Clone(limits)
	for i := range all {
		for _, l := range policy {
			if l.Window == all[i].Window {
				all[i].Phase, all[i].Sliding = l.Phase, l.Sliding
			}
		}
	}
	return all
}

// Equal reports whether two overrides, or none, say the same.
func (o *Override) Equal(p *Override) bool {
	if o == nil || p == nil || o == p {
		return o == p
	}
	return slices.Equal(o.Limits, p.Limits) && (o.Owners == p.Owners || o.Owners != nil && p.Owners != nil && *o.Owners == *p.Owners)
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
func EncodeOverrides(keys map[string]*Override) ([]byte, error) {
	w := wireOverrides{Keys: map[string]string{}}
	for name, o := range keys {
		w.Keys[name] = o.String()
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
	o := &Overrides{Keys: make(map[string]*Override, len(w.Keys))}
	read := map[string]*Override{} // many keys have the same limits
	for _, name := range slices.Sorted(maps.Keys(w.Keys)) {
		if of := OverrideBucket(name); of != bucket {
			return nil, fmt.Errorf("overrides: key %q belongs to document %02d, not %02d", name, of, bucket)
		}
		text := w.Keys[name]
		if read[text] == nil {
			one, err := ParseOverride(text)
			if err != nil {
				return nil, fmt.Errorf("overrides: key %q: %w", name, err)
			}
			read[text] = one
		}
		if o.Keys[name] = read[text]; ValidateOverride(name, read[text]) != nil {
			return nil, fmt.Errorf("overrides: %w", ValidateOverride(name, read[text]))
		}
	}
	return o, nil
}

// ValidateOverride checks a key's name, and an override of it as a policy's keys.
func ValidateOverride(name string, o *Override) error {
	if err := ValidateKey(name); err != nil {
		return err
	}
	if o == nil || len(o.Limits) == 0 {
		return errors.New("limits: there are none; delete the override instead")
	}
	for _, l := range o.Limits {
		if l.Phase != 0 || l.Sliding {
			return fmt.Errorf("key %q: %v: leave out a phase, and sliding: a limit of one key has those of the limit of each key with the same window, and without such a limit goes by the clock", name, l)
		}
	}
	p := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: quota.MaxWindow}}, Keys: o.In(quota.Keys{})}.WithDefaults()
	if err := p.Validate(); err != nil {
		return fmt.Errorf("key %q: %w", name, err)
	}
	return nil
}

// Override returns the override of a key, nil if it has none. broken says that this is not known.
func (v *View) Override(key string) (own *Override, broken bool) {
	o := v.Overrides[OverrideBucket(key)]
	if o == nil {
		return nil, false
	}
	return o.Keys[key], o.Broken
}
