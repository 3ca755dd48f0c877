package change

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Difference is one field in which two policies differ, in words; an empty text
// is a field that is not set.
type Difference struct {
	Field string `json:"field"` // as in JSON; an announced change is "next TIME"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// Diff returns in what two policies differ, beside who wrote them, when and why.
// It takes the fields from their JSON, so that none is forgotten. Nil stands for
// no policy.
func Diff(old, next *quota.Policy) []Difference {
	o, n := fields(old), fields(next)
	var all []Difference
	for _, f := range o {
		i := slices.IndexFunc(n, func(g Difference) bool { return g.Field == f.Field })
		switch {
		case i < 0:
			all = append(all, Difference{Field: f.Field, Old: f.New})
		case n[i].New != f.New:
			all = append(all, Difference{Field: f.Field, Old: f.New, New: n[i].New})
		}
	}
	for i, g := range n {
		if slices.ContainsFunc(o, func(f Difference) bool { return f.Field == g.Field }) {
			continue
		}
		// A new field goes where it stands in the new policy.
		at := len(all)
		if i > 0 {
			if j := slices.IndexFunc(all, func(d Difference) bool { return d.Field == n[i-1].Field }); j >= 0 {
				at = j + 1
			}
		}
		all = slices.Insert(all, at, Difference{Field: g.Field, New: g.New})
	}
	return all
}

// Beside is Diff without the limits; it is nil where one of the policies is.
func Beside(old, next *quota.Policy) []Difference {
	if old == nil || next == nil {
		return nil
	}
	return slices.DeleteFunc(Diff(old, next), func(d Difference) bool { return d.Field == "limits" })
}

// Same reports whether writing next in place of old would change nothing but who
// wrote it, when and why.
func Same(old, next quota.Policy, now time.Time) bool {
	o, n := Current(old, now), Current(next, now)
	return len(Diff(&o, &n)) == 0
}

// unlike are fields of the write rather than of the policy.
var unlike = []string{"schema", "author", "reason", "time"}

// fields returns the policy's fields in the order of its JSON, each as New.
func fields(p *quota.Policy) (all []Difference) {
	if p == nil {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return []Difference{{Field: "policy", New: "cannot be written: " + err.Error()}}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the opening brace of a text that was just written
	for d.More() {
		var value json.RawMessage
		name, _ := d.Token()
		if d.Decode(&value) != nil {
			break
		}
		switch field, _ := name.(string); {
		case slices.Contains(unlike, field):
		case field == "limits":
			all = append(all, Difference{Field: field, New: quota.FormatLimits(p.Limits)})
		case field == "next":
			for _, c := range p.Next {
				all = append(all, Difference{Field: "next " + c.From.UTC().Format(time.RFC3339Nano), New: quota.FormatLimits(c.Limits)})
			}
		default:
			all = append(all, Difference{Field: field, New: word(value)})
		}
	}
	return all
}

// word is a JSON value without the quotes of a text.
func word(value json.RawMessage) string {
	var text string
	var texts []string
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &texts) == nil:
		return strings.Join(texts, ", ")
	}
	return string(value)
}
