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
func Diff(old, next *quota.Policy) (all []Difference) {
	is := fields(next)
	for _, was := range fields(old) {
		d := Difference{Field: was.Field, Old: was.New}
		if i := indexOf(is, was.Field); i >= 0 {
			d.New = is[i].New
		}
		all = append(all, d)
	}
	for i, d := range is { // a new field goes where it stands in the new policy
		if indexOf(all, d.Field) < 0 {
			at := 0
			if i > 0 {
				at = indexOf(all, is[i-1].Field) + 1
			}
			for at < len(all) && indexOf(is, all[at].Field) < 0 { // behind those that went
				at++
			}
			all = slices.Insert(all, at, d)
		}
	}
	return slices.DeleteFunc(all, func(d Difference) bool { return d.Old == d.New })
}

func indexOf(all []Difference, field string) int {
	return slices.IndexFunc(all, func(d Difference) bool { return d.Field == field })
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
		var value any
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

// word is a JSON value as people read it.
func word(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = word(v[i])
		}
		return strings.Join(words, ", ")
	}
	text, _ := json.Marshal(value)
	return string(text)
}
