package main

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// shown is a policy as -o json shows it: its durations are numbers of seconds, and their names
// say so. export writes the form that apply reads, with texts such as "3s".
type shown quota.Policy

// durations are the fields of a policy's JSON that are texts such as "3s".
var durations = []string{"settle", "freshness", "clock_error", "guard", "warm_up", "backoff_max", "window"}

// MarshalJSON implements json.Marshaler.
func (p *shown) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal((*quota.Policy)(p))
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil, err
	}
	delete(fields, "schema") // of the form in etcd, which this is not
	if len(p.Ignored) > 0 {
		fields["ignored"] = p.Ignored
	}
	inSeconds(fields)
	return json.Marshal(fields)
}

// inSeconds makes numbers of durations, also within.
func inSeconds(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			inSeconds(one)
		}
	case map[string]any:
		for name, field := range v {
			inSeconds(field)
			if text, ok := field.(string); ok && slices.Contains(durations, name) {
				d, _ := time.ParseDuration(text)
				v[name+"_seconds"] = d.Seconds()
				delete(v, name)
			}
		}
	}
}
