package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// yamlFromJSON writes the same document as YAML, with the same names in the
// same order.
func yamlFromJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	doc, err := yamlNode(d)
	if err != nil {
		return nil, err
	}
	// What does not print is escaped only if all that is not ASCII is.
	return yaml.Dump(doc, yaml.WithUnicode(!hides(doc)), yaml.WithLineWidth(-1))
}

// yamlNode reads one JSON value. (A YAML parser reads JSON too, except for
// characters beyond 16 bits that are escaped.)
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for d.More() {
			// Names of an object are tokens like any other.
			child, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		return n, nil
	case string:
		// With its tag the encoder quotes what would read as something else.
		n := scalar("!!str", v)
		if !printable(v) {
			n.Style = yaml.DoubleQuotedStyle // on one line, with tabs escaped
		}
		return n, nil
	case json.Number:
		kind := "!!int"
		if _, err := v.Int64(); err != nil {
			kind = "!!float"
		}
		return scalar(kind, v.String()), nil
	case bool:
		return scalar("!!bool", fmt.Sprint(v)), nil
	}
	return scalar("!!null", "null"), nil
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// hides reports whether the document has text that does not print.
func hides(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && !printable(n.Value) || slices.ContainsFunc(n.Content, hides)
}
