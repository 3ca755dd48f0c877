package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"go.yaml.in/yaml/v2"

	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of a mapping.
const (
	maxFile    = 1 << 20 // bytes
	maxRules   = 1000    // of each service
	maxEntries = 16      // of a rule, and of a descriptor or bucket that Envoy sends
	maxMaxWait = 10 * time.Second
)

// mapping says which provider's permits a request takes.
type mapping struct {
	// MaxWait bounds the wait of ShouldRateLimit for permits, as text; default 0.
	MaxWait     string `yaml:"max_wait"`
	Descriptors []descriptorRule
	Buckets     []bucketRule

	maxWait time.Duration
}

// descriptorRule is for ShouldRateLimit.
type descriptorRule struct {
	Domain   string
	Entries  []entry // in Envoy's order
	Provider string
	// Name begins the names of the limits in the fields RateLimit and RateLimit-Policy.
	Name string

	name ratefields.Name
}

// entry is part of a descriptor; an empty value stands for any.
type entry struct {
	Key   string
	Value string
}

// bucketRule is for StreamRateLimitQuotas. The bucket's ID has at least these keys and
// values.
type bucketRule struct {
	Domain   string
	Bucket   map[string]string
	Provider string
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
	case len(m.Descriptors)+len(m.Buckets) == 0:
		return errors.New("there is no rule: write descriptors, buckets, or both")
	case len(m.Descriptors) > maxRules || len(m.Buckets) > maxRules:
		return fmt.Errorf("descriptors and buckets: %d and %d rules, at most %d of each are allowed", len(m.Descriptors), len(m.Buckets), maxRules)
	}
	if m.MaxWait != "" {
		if m.maxWait, err = time.ParseDuration(m.MaxWait); err != nil || m.maxWait < 0 || m.maxWait > maxMaxWait {
			return fmt.Errorf("max_wait: %q must be a time from 0s to %v", m.MaxWait, maxMaxWait)
		}
	}
	assigned := map[string]int{}
	for i, r := range m.Buckets {
		if err := checkRule(r.Domain, r.Provider, slices.Collect(maps.Keys(r.Bucket))); err != nil {
			return fmt.Errorf("buckets[%d]: %w", i, err)
		}
		assigned[r.Provider] = i
	}
	for i, r := range m.Descriptors {
		var keys []string
		for _, e := range r.Entries {
			keys = append(keys, e.Key)
		}
		err := checkRule(r.Domain, r.Provider, keys)
		if err == nil {
			m.Descriptors[i].name, err = ratefields.NewName(cmp.Or(r.Name, "default"))
		}
		if at, both := assigned[r.Provider]; err == nil && both {
			err = fmt.Errorf("provider %s is that of buckets[%d] too: a host assigns a provider to Envoys, or answers call by call", r.Provider, at)
		}
		if err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return nil
}

func checkRule(domain, provider string, keys []string) error {
	switch {
	case domain == "":
		return errors.New("domain is missing: write that of Envoy's filter")
	case len(keys) == 0 || slices.Contains(keys, ""):
		return errors.New("a key is missing")
	case len(keys) > maxEntries:
		return fmt.Errorf("%d keys, at most %d are allowed", len(keys), maxEntries)
	}
	if err := quota.ValidateProvider(provider); err != nil {
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

// bucket returns the provider of the first rule that matches; false if there is none.
func (m *mapping) bucket(domain string, id map[string]string) (provider string, ok bool) {
	i := slices.IndexFunc(m.Buckets, func(r bucketRule) bool {
		for key, value := range r.Bucket {
			if found, ok := id[key]; !ok || found != value {
				return false
			}
		}
		return r.Domain == domain
	})
	if i < 0 {
		return "", false
	}
	return m.Buckets[i].Provider, true
}

// assigned returns the providers that belong to Envoys with assignments.
func (m *mapping) assigned() (providers []string) {
	for _, r := range m.Buckets {
		providers = append(providers, r.Provider)
	}
	slices.Sort(providers)
	return slices.Compact(providers)
}
