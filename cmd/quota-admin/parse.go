package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/quotient-limiter/quotient/quota"
)

// maxDocument bounds what apply reads.
const maxDocument = 8 << 20

// maxProblems is how many problems of a document are told at once.
const maxProblems = 20

// parser reads a document of policies. It collects what is wrong, each with its
// line.
type parser struct {
	file     string
	problems []string
}

// entry is one policy of a document.
type entry struct {
	provider string
	policy   quota.Policy
}

// parseDocument reads a document. The order of its policies is kept.
func parseDocument(file string, text []byte) ([]entry, error) {
	if len(text) > maxDocument {
		return nil, fmt.Errorf("%s: more than %d MiB: this is no document of policies", file, maxDocument>>20)
	}
	var doc yaml.Node
	if err := yaml.Load(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p := &parser{file: file}
	entries := p.document(doc.Content[0])
	if len(p.problems) == 0 {
		return entries, nil
	}
	shown := p.problems[:min(len(p.problems), maxProblems)]
	if more := len(p.problems) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return nil, &hinted{errors.New(shown[0]), shown[1:]}
}

// bad notes what is wrong at a node.
func (p *parser) bad(n *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("%s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...)))
}

// pairs calls f for every field of a mapping. Names come once, and are texts;
// there are no anchors, which could make much of little.
func (p *parser) pairs(n *yaml.Node, what string, f func(name string, key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.bad(n, "%s must be a mapping", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			p.bad(key, "%s: a name must be a text", what)
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			p.bad(value, "%s: anchors and aliases are not taken; write it out", key.Value)
		case seen[key.Value] > 0:
			p.bad(key, "%s is there already, in line %d", key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			f(key.Value, key, value)
		}
	}
}

func (p *parser) document(n *yaml.Node) (entries []entry) {
	found := false
	p.pairs(n, "a document", func(name string, key, value *yaml.Node) {
		switch name {
		case "schema":
			if value.Value != strconv.Itoa(quota.Schema) {
				p.bad(value, "schema %q is not the one this version knows, %d", value.Value, quota.Schema)
			}
		case "policies":
			found = true
			p.pairs(value, "policies", func(provider string, key, value *yaml.Node) {
				if err := quota.ValidateProvider(provider); err != nil {
					p.bad(key, "%v", err)
					return
				}
				entries = append(entries, entry{provider, p.policy(provider, key, value)})
			})
		default:
			p.bad(key, "unknown field %q; a document has schema and policies", name)
		}
	})
	if !found && len(p.problems) == 0 {
		p.bad(n, "policies are missing")
	}
	return entries
}

// policy reads one policy. Every field is decoded by itself as quota decodes it,
// so that its problem has its line.
func (p *parser) policy(provider string, key, n *yaml.Node) (policy quota.Policy) {
	known := knownFields()
	lines := map[string]*yaml.Node{}
	all := map[string]any{"schema": quota.Schema}
	before := len(p.problems)
	p.pairs(n, provider, func(name string, key, value *yaml.Node) {
		if !slices.Contains(known, name) {
			p.bad(key, "%s: unknown field %q; known are %s", provider, name, strings.Join(known, ", "))
			return
		}
		lines[name] = value
		field, ok := p.field(provider, name, value, lines)
		if !ok {
			return
		}
		all[name] = field
		if err := decodePolicy(map[string]any{"schema": quota.Schema, name: field}, new(quota.Policy)); err != nil {
			p.bad(value, "%s: %s: %s", provider, name, plain(err))
		}
	})
	if len(p.problems) > before {
		return policy
	}
	if err := decodePolicy(all, &policy); err != nil {
		p.bad(key, "%s: %v", provider, err)
		return policy
	}
	policy = policy.WithDefaults()
	for _, err := range parts(policy.Validate()) {
		at := key
		if field, ok := errors.AsType[*quota.FieldError](err); ok {
			at = nearest(lines, field.Field, key)
		}
		p.bad(at, "%s: %v", provider, err)
	}
	return policy
}

// field turns the value of a field into what its JSON has.
func (p *parser) field(provider, name string, n *yaml.Node, lines map[string]*yaml.Node) (any, bool) {
	switch name {
	case "limits":
		return p.limits(provider, n)
	case "next":
		if n.Kind != yaml.SequenceNode {
			p.bad(n, "%s: next must be a list of changes, each with from and limits", provider)
			return nil, false
		}
		next, good := []any{}, true
		for i, c := range n.Content {
			lines[fmt.Sprintf("next[%d]", i)] = c
			one := map[string]any{}
			p.pairs(c, provider+": next", func(name string, key, value *yaml.Node) {
				ok := true
				switch name {
				case "from":
					one[name], ok = p.value(provider, value)
				case "limits":
					one[name], ok = p.limits(provider, value)
				default:
					p.bad(key, "%s: unknown field %q; a change in next has from and limits", provider, name)
				}
				good = good && ok
			})
			next = append(next, one)
		}
		return next, good
	}
	return p.value(provider, n)
}

// limits reads limits as text.
func (p *parser) limits(provider string, n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		p.bad(n, `%s: limits must be a text, as in "500/2s,10000/1m"`, provider)
		return nil, false
	}
	limits, err := quota.ParseLimits(n.Value)
	if err != nil {
		p.bad(n, "%s: %v", provider, err)
		return nil, false
	}
	list := []any{}
	for _, l := range limits {
		list = append(list, map[string]any{"permits": l.Permits, "window": l.Window.String()})
	}
	return list, true
}

// value turns a value into JSON's.
func (p *parser) value(provider string, n *yaml.Node) (any, bool) {
	switch {
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, ok := p.value(provider, c)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case n.Kind == yaml.MappingNode:
		all, good := map[string]any{}, true
		p.pairs(n, provider, func(name string, _, value *yaml.Node) {
			var ok bool
			all[name], ok = p.value(provider, value)
			good = good && ok
		})
		return all, good
	case n.Kind != yaml.ScalarNode:
		p.bad(n, "%s: a value is expected", provider)
		return nil, false
	case n.Tag == "!!null":
		p.bad(n, "%s: the value is missing; leave the field out for its default", provider)
		return nil, false
	case n.Tag != "!!str" && json.Valid([]byte(n.Value)): // a number or a truth value
		return json.RawMessage(n.Value), true
	}
	return n.Value, true
}

func decodePolicy(fields map[string]any, into *quota.Policy) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// plain says what is wrong with a value without the words of package json.
func plain(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "a " + wrong.Value + " does not belong here; write a text as export does, as in 3s"
	}
	if wrong, ok := errors.AsType[*time.ParseError](err); ok {
		return strconv.Quote(wrong.Value) + " is no time; write it as in 2027-01-01T00:00:00Z"
	}
	return strings.TrimPrefix(err.Error(), "policy: ")
}

// parts takes joined errors apart.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// nearest returns the node of the longest beginning of a field's name that has
// one: that of next[0] for next[0].limits[1].permits.
func nearest(lines map[string]*yaml.Node, field string, otherwise *yaml.Node) *yaml.Node {
	for field != "" {
		if n := lines[field]; n != nil {
			return n
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return otherwise
}
