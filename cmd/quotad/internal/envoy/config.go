package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"go.yaml.in/yaml/v2"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of a mapping.
const (
	maxFile    = 1 << 20 // bytes
	maxRules   = 1000
	maxEntries = 16 // of a rule
	maxMaxWait = 10 * time.Second
)

// mapping says which provider's permits a request takes.
type mapping struct {
	// MaxWait bounds the wait of a request for permits, as text; default 0.
	MaxWait     string `yaml:"max_wait"`
	Descriptors []descriptorRule

	maxWait time.Duration
}

// descriptorRule says whose permits a descriptor takes.
type descriptorRule struct {
	Domain   string
	Entries  []entry // in Envoy's order
	Provider string
	// KeyFrom, if set, is the key of the entry whose value is the key of the provider.
	KeyFrom string `yaml:"key_from"`
	// LabelFrom, if set, is the key of the entry whose value is the label of the calls.
	LabelFrom string `yaml:"label_from"`
	// Class is the class of the calls, default if it is empty.
	Class consumer.Class
	// Name begins the names of the limits in the fields RateLimit and RateLimit-Policy.
	Name string

	name ratefields.Name
}

// entry is part of a descriptor; an empty value stands for any.
type entry struct {
	Key   string
	Value string
}

// load reads a mapping. An error names the file and the rule.
func load(file string) (*mapping, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: %d bytes are more than %d", file, len(text), maxFile)
	}
	var m mapping
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")), " "))
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &m, nil
}

func (m *mapping) check() (err error) {
	switch {
	case len(m.Descriptors) == 0:
		return errors.New("there is no rule: write descriptors")
	case len(m.Descriptors) > maxRules:
		return fmt.Errorf("descriptors: %d rules, at most %d are allowed", len(m.Descriptors), maxRules)
	}
	if m.MaxWait != "" {
		if m.maxWait, err = time.ParseDuration(m.MaxWait); err != nil || m.maxWait < 0 || m.maxWait > maxMaxWait {
			return fmt.Errorf("max_wait: %q must be a time from 0s to %v", m.MaxWait, maxMaxWait)
		}
	}
	for i, r := range m.Descriptors {
		err := r.check()
		if err == nil {
			m.Descriptors[i].name, err = ratefields.NewName(cmp.Or(r.Name, "default"))
		}
		if err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return nil
}

func (r *descriptorRule) check() error {
	switch {
	case r.Domain == "":
		return errors.New("domain is missing: write that of Envoy's filter")
	case len(r.Entries) == 0 || slices.ContainsFunc(r.Entries, func(e entry) bool { return e.Key == "" }):
		return errors.New("a key is missing")
	case len(r.Entries) > maxEntries:
		return fmt.Errorf("%d keys, at most %d are allowed", len(r.Entries), maxEntries)
	}
	for _, from := range [][2]string{{"key_from", r.KeyFrom}, {"label_from", r.LabelFrom}} {
		if from[1] != "" && !slices.ContainsFunc(r.Entries, func(e entry) bool { return e.Key == from[1] }) {
			return fmt.Errorf("%s: no entry has the key %q", from[0], from[1])
		}
	}
	if !slices.Contains([]consumer.Class{"", consumer.Critical, consumer.Default, consumer.Sheddable}, r.Class) {
		return fmt.Errorf("class: %q must be critical, default or sheddable", r.Class)
	}
	if err := quota.ValidateProvider(r.Provider); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	return nil
}

// descriptor returns the first rule that matches; nil if there is none.
func (m *mapping) descriptor(domain string, entries []*commonv3.RateLimitDescriptor_Entry) *descriptorRule {
	i := slices.IndexFunc(m.Descriptors, func(r descriptorRule) bool {
		return r.Domain == domain && slices.EqualFunc(r.Entries, entries, func(e entry, found *commonv3.RateLimitDescriptor_Entry) bool {
			return e.Key == found.GetKey() && (e.Value == "" || e.Value == found.GetValue())
		})
	})
	if i < 0 {
		return nil
	}
	return &m.Descriptors[i]
}

// from returns the limiter, or its key that a descriptor names, with the descriptor's label. A
// key without a value, or of a value that no key can have, is an error: it must not stand for a
// call without a key. So is a value that no label can have, but for an empty one.
func (r *descriptorRule) from(l *consumer.Limiter, entries []*commonv3.RateLimitDescriptor_Entry) (from consumer.Taker, key string, err error) {
	value := func(of string) string { // a rule is checked: there is such an entry
		i := slices.IndexFunc(entries, func(e *commonv3.RateLimitDescriptor_Entry) bool { return e.GetKey() == of })
		return entries[i].GetValue()
	}
	if r.LabelFrom != "" {
		if label := value(r.LabelFrom); label != "" {
			if err := protocol.ValidateLabel(label); err != nil {
				return nil, "", err
			}
			l = l.Label(label)
		}
	}
	if r.KeyFrom == "" {
		return l, "", nil
	}
	key = value(r.KeyFrom)
	return l.Key(key), key, protocol.ValidateKey(key)
}
