// Package document reads and writes policies as a document, YAML or JSON:
//
//	schema: 1
//	policies:
//	  payments/charge:
//	    limits: 500/2s,10000/1m
//	    settle: 3s
//	    keys:
//	      limits: 80/s
//	      overrides:
//	        installation-4711: 400/s
//	    ...
//
// A policy's fields are those of its JSON in etcd, with limits as text, and without
// who wrote it, when and why. Fields that are left out have their defaults.
package document

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Most is the largest document that is read, in bytes.
const Most = 8 << 20

// maxProblems is how many problems of a document are told at once.
const maxProblems = 20

// optional are the fields that a policy's JSON lacks where they are empty.
var optional = []string{"keys", "shape", "burst", "lend", "classes", "warm_up", "zone", "backoff_max", "from", "next", "max_step", "requires"}

// Entry is what a document says of a provider.
type Entry struct {
	Policy quota.Policy
	// Overrides are those of single keys, all that the provider has; nil if the document does not
	// say.
	Overrides map[string]*protocol.Override
}

// Parse reads a document, and returns its entries by provider, each complete and valid;
// otherwise what is wrong with it, a line for each problem.
func Parse(file string, text []byte) (_ map[string]Entry, problems []string) {
	if len(text) > Most {
		return nil, []string{fmt.Sprintf("%s: more than %d MiB: this is no document of policies", file, Most>>20)}
	}
	if n := documentsIn(text); n > 1 {
		return nil, []string{fmt.Sprintf("%s: the file has %d YAML documents: apply one file for each", file, n)}
	}
	text, err := yaml.YAMLToJSONStrict(text)
	var found struct {
		Schema   *int                       `json:"schema"`
		Policies map[string]json.RawMessage `json:"policies"`
	}
	if err == nil {
		err = decode(text, &found)
	}
	switch {
	case err != nil:
		problem := plain(err)
		if strings.HasPrefix(problem, "unknown field") {
			problem += "; known are policies and schema"
		}
		return nil, []string{file + ": " + problem}
	case found.Schema != nil && *found.Schema != quota.Schema:
		return nil, []string{fmt.Sprintf("%s: schema %d is not the one this version knows, %d", file, *found.Schema, quota.Schema)}
	case found.Policies == nil:
		return nil, []string{file + ": policies are missing"}
	}
	policies := map[string]Entry{}
	for _, provider := range slices.Sorted(maps.Keys(found.Policies)) {
		p, overrides, errs := policy(provider, found.Policies[provider])
		for _, err := range errs {
			problems = append(problems, fmt.Sprintf("%s: %s: %s", file, provider, plain(err)))
		}
		policies[provider] = Entry{p, overrides}
	}
	if n := len(problems); n > maxProblems {
		problems = append(problems[:maxProblems:maxProblems], fmt.Sprintf("and %d more", n-maxProblems))
	}
	return policies, problems
}

// documentsIn counts the YAML documents that have something in them, up to one that cannot be parsed.
// Parse reads the first alone, and would drop the others without a word.
func documentsIn(text []byte) (n int) {
	for d := yamlv2.NewDecoder(bytes.NewReader(text)); ; {
		var document any
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil || document != nil {
			n++
		}
		if err != nil {
			return n
		}
	}
}

// policy reads one policy and its overrides, or returns all that is wrong with them.
func policy(provider string, text []byte) (p quota.Policy, overrides map[string]*protocol.Override, errs []error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return p, nil, []error{err}
	}
	var fields map[string]json.RawMessage
	if err := decode(text, &fields); err != nil {
		return p, nil, []error{err}
	}
	if fields == nil {
		return p, nil, []error{errors.New("limits: the value is missing")}
	}
	known := append(slices.Collect(maps.Keys(change.Fields(&quota.Policy{}))), optional...)
	slices.Sort(known)
	var now limitsText
	var next []quota.LimitChange
	var keys quota.Keys
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		err := gone(name, value)
		switch {
		case err != nil:
		case !slices.Contains(known, name) && name != "share": // which earlier versions wrote, as "equal"
			err = fmt.Errorf("unknown field; known are %s", strings.Join(known, ", "))
		case string(value) == "null":
			err = errors.New("the value is missing; leave the field out for its default")
		case name == "limits":
			err = json.Unmarshal(value, &now)
			delete(fields, name)
		case name == "keys":
			keys, overrides, err = keysOf(value)
			delete(fields, name)
		case name == "classes":
			err = decode(value, &struct {
				Critical int64 `json:"critical"`
			}{})
		case name == "next":
			next, err = changes(value)
			delete(fields, name)
		default: // by itself, so that its problem has its name
			one, _ := json.Marshal(map[string]any{"schema": quota.Schema, name: value})
			err = json.Unmarshal(one, new(quota.Policy))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", name, plain(err)))
		}
	}
	if len(errs) > 0 {
		return p, nil, errs
	}
	fields["schema"] = json.RawMessage(strconv.Itoa(quota.Schema))
	all, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(all, &p)
	}
	if err != nil {
		return p, nil, []error{err}
	}
	p.Limits, p.Keys, p.Next = now, keys, next
	p = p.WithDefaults()
	if joined, ok := p.Validate().(interface{ Unwrap() []error }); ok {
		return p, nil, joined.Unwrap()
	}
	return p, overrides, nil
}

// gone returns nil for a field of this version. For a field that went with an earlier version, or a
// value of one, it says what to do.
func gone(name string, value json.RawMessage) error {
	var p quota.Policy
	text, _ := json.Marshal(map[string]any{"schema": quota.Schema, name: value})
	went := json.Unmarshal(text, &p) == nil && len(p.Ignored) > 0
	if !went {
		return nil
	}
	if name == "guard" {
		var guard string
		_ = json.Unmarshal(value, &guard) // which succeeded above
		_, err := quota.ParseGuard(guard)
		return err
	}
	return fmt.Errorf("%s: leave it out", strings.TrimSpace(strings.TrimPrefix(p.Ignored[0], name)+" went with an earlier version"))
}

type limitsText []quota.Limit

// UnmarshalJSON implements json.Unmarshaler.
func (l *limitsText) UnmarshalJSON(value []byte) (err error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return errors.New(`must be a text, as in "500/2s,10000/1m"`)
	}
	*l, err = quota.ParseLimits(text)
	return err
}

// overrideText is a key's override: its limits, and owners= if these differ too.
type overrideText struct{ own *protocol.Override }

// UnmarshalJSON implements json.Unmarshaler.
func (o *overrideText) UnmarshalJSON(value []byte) (err error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return errors.New(`must be a text, as in "400/s" or "400/s owners=3"`)
	}
	o.own, err = protocol.ParseOverride(text)
	return err
}

func keysOf(value json.RawMessage) (_ quota.Keys, overrides map[string]*protocol.Override, _ error) {
	var keys struct {
		Limits    *limitsText             `json:"limits"`
		Most      int64                   `json:"most"`
		Owners    int64                   `json:"owners"`
		Overrides map[string]overrideText `json:"overrides"`
	}
	err := decode(value, &keys)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return quota.Keys{}, nil, fmt.Errorf("%s: %s", wrong.Field, plain(err))
	}
	if err == nil && keys.Limits == nil {
		err = errors.New("limits are missing")
	}
	if err != nil {
		return quota.Keys{}, nil, fmt.Errorf("must have limits, and may have most, owners and overrides: %s", plain(err))
	}
	if n := len(keys.Overrides); n > protocol.MaxOverrides {
		return quota.Keys{}, nil, fmt.Errorf("%d overrides: at most %d; change the limits of all keys, or use another provider", n, protocol.MaxOverrides)
	}
	if keys.Overrides != nil {
		overrides = map[string]*protocol.Override{}
	}
	for _, name := range slices.Sorted(maps.Keys(keys.Overrides)) {
		if overrides[name] = keys.Overrides[name].own; protocol.ValidateOverride(name, overrides[name]) != nil {
			return quota.Keys{}, nil, fmt.Errorf("overrides: %w", protocol.ValidateOverride(name, overrides[name]))
		}
	}
	return quota.Keys{Limits: *keys.Limits, Most: keys.Most, Owners: keys.Owners}, overrides, nil
}

func changes(value json.RawMessage) (next []quota.LimitChange, err error) {
	var list []struct {
		From   time.Time  `json:"from"`
		Limits limitsText `json:"limits"`
	}
	if err := decode(value, &list); err != nil {
		return nil, fmt.Errorf("must be a list of changes, each with from and limits: %s", plain(err))
	}
	for _, c := range list {
		next = append(next, quota.LimitChange{From: c.From, Limits: c.Limits})
	}
	return next, nil
}

// decode reads JSON, all of it, with known fields only.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// plain says what is wrong without the words of the packages that decode.
func plain(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := "a list or fields, as export writes them"
		switch kind := wrong.Type.Kind(); {
		case kind == reflect.String, reflect.PointerTo(wrong.Type).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
			want = `a text, such as "20ms" for a time`
		case kind == reflect.Int64:
			want = "a whole number"
		case kind == reflect.Float64:
			want = "a number"
		}
		return "must be " + want + ", found: " + wrong.Value
	}
	if wrong, ok := errors.AsType[*time.ParseError](err); ok {
		return strconv.Quote(strings.Trim(wrong.Value, `"`)) + " is no time; write it as in 2027-01-01T00:00:00Z"
	}
	text := err.Error()
	for _, prefix := range []string{"json: ", "policy: ", "error converting YAML to JSON: ", "yaml: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return strings.Join(strings.Fields(text), " ")
}

// Of returns entries as a document has them: policies as they stand at now.
func Of(entries map[string]Entry, now time.Time) any {
	all := map[string]any{}
	for provider, e := range entries {
		fields := Fields(change.Current(e.Policy, now))
		if keys, ok := fields["keys"].(map[string]any); ok && len(e.Overrides) > 0 {
			overrides := map[string]string{}
			for name, own := range e.Overrides {
				overrides[name] = own.String()
			}
			keys["overrides"] = overrides
		}
		all[provider] = fields
	}
	return map[string]any{"schema": quota.Schema, "policies": all}
}

// Fields returns a policy as a document has it.
func Fields(p quota.Policy) map[string]any {
	fields := change.Fields(&p)
	fields["limits"] = change.Limits(&p)
	if k := p.Keys; len(k.Limits) > 0 {
		keys := map[string]any{"limits": quota.FormatLimits(k.Limits), "most": k.Most}
		if k.Owners > 0 {
			keys["owners"] = k.Owners
		}
		fields["keys"] = keys
	}
	for i, c := range p.Next {
		fields["next"].([]any)[i] = map[string]any{"from": c.From.UTC(), "limits": quota.FormatLimits(c.Limits)}
	}
	return fields
}
