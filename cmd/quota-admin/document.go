package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/change"
	"github.com/quotient-limiter/quotient/quota"
)

// A document of policies is what export writes and apply reads, as YAML or JSON:
//
//	schema: 1
//	policies:
//	  payments/charge:
//	    limits: 500/2s,10000/1m
//	    settle: 3s
//	    ...
//
// A policy's fields are those of its JSON in etcd, with limits as text, and
// without who wrote it, when and why. Fields that are left out have their
// defaults.

// notInDocuments are the fields of a policy that belong to one writing of it.
var notInDocuments = []string{"schema", "author", "reason", "time"}

// optionalFields are those that a policy's JSON lacks where they are empty.
var optionalFields = []string{"weights", "floor_percent", "guard_auto", "pacing_delay", "shape", "burst", "warm_up", "from", "next", "max_step", "requires"}

// knownFields are the fields that a policy in a document may have.
func knownFields() []string {
	var known []string
	for _, f := range object(quota.Policy{}) {
		if !slices.Contains(notInDocuments, f.name) {
			known = append(known, f.name)
		}
	}
	return append(known, optionalFields...)
}

// ordered is a JSON object whose fields keep their order.
type ordered []orderedField

type orderedField struct {
	name  string
	value any
}

// MarshalJSON writes the fields in order.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// object takes a policy's JSON apart into its fields, in order.
func object(p quota.Policy) (fields ordered) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil // a policy that was read from etcd can be written
	}
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the opening brace
	for d.More() {
		var value json.RawMessage
		name, _ := d.Token()
		if d.Decode(&value) != nil {
			return nil
		}
		text, _ := name.(string)
		fields = append(fields, orderedField{text, value})
	}
	return fields
}

// exported is a policy as a document has it: as it stands now.
func exported(p quota.Policy, now time.Time) ordered {
	p = change.Current(p, now)
	var fields ordered
	for _, f := range object(p) {
		switch {
		case slices.Contains(notInDocuments, f.name):
			continue
		case f.name == "limits":
			f.value = quota.FormatLimits(p.Limits)
		case f.name == "next":
			var next []ordered
			for _, c := range p.Next {
				next = append(next, ordered{{"from", c.From.UTC()}, {"limits", quota.FormatLimits(c.Limits)}})
			}
			f.value = next
		}
		fields = append(fields, f)
	}
	return fields
}
