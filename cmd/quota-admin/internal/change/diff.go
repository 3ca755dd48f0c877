package change

import (
	"bytes"
	"encoding/json"
	"maps"
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

// OfOneWrite are the fields of a policy's JSON that tell who wrote it, when and why.
var OfOneWrite = []string{"schema", "author", "reason", "time"}

// Fields returns the fields of a policy's JSON, without OfOneWrite.
func Fields(p *quota.Policy) (fields map[string]any) {
	if text, err := json.Marshal(p); err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		_ = d.Decode(&fields)
	}
	for _, name := range OfOneWrite {
		delete(fields, name)
	}
	return fields
}

// Diff returns in what two policies differ, beside OfOneWrite, by field. Nil stands for
// no policy.
func Diff(old, next *quota.Policy) (all []Difference) {
	was, is := words(old), words(next)
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			all = append(all, Difference{name, was[name], is[name]})
		}
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

// Same reports whether writing next in place of old would change nothing but
// OfOneWrite.
func Same(old, next quota.Policy, now time.Time) bool {
	o, n := Current(old, now), Current(next, now)
	return len(Diff(&o, &n)) == 0
}

// words returns a policy's fields as people read them.
func words(p *quota.Policy) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	for name, value := range Fields(p) {
		all[name] = word(value)
	}
	all["limits"] = quota.FormatLimits(p.Limits)
	delete(all, "next")
	for _, c := range p.Next {
		all["next "+c.From.UTC().Format(time.RFC3339Nano)] = quota.FormatLimits(c.Limits)
	}
	return all
}

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
