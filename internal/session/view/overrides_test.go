package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// TestBrokenOverrides: a document that cannot be read leaves the last one in force, for an
// instance that knows one; one that lists says that its keys are not known. Both tell it.
func TestBrokenOverrides(t *testing.T) {
	bucket := protocol.OverrideBucket("a")
	document := func(revision int64, value string) Key {
		return Key{Kind: Overrides, Bucket: bucket, Revision: revision, Value: []byte(value)}
	}
	const good, next, bad = `{"schema":1,"keys":{"a":"30/s"}}`, `{"schema":1,"keys":{"a":"4/s"}}`, `{"schema":2,"keys":{"a":"4/s"}}`
	of := func(all map[int]*protocol.Overrides) string {
		o, ok := all[bucket]
		switch {
		case !ok:
			return "as before"
		case o == nil:
			return "none"
		case o.Broken:
			return "unknown"
		}
		return o.Keys["a"].String()
	}
	for _, c := range []struct {
		name, listed string
		events       []Key
		want         string // of the listing and of each event
		problem      bool
	}{
		{"read", good, nil, "30/s", false},
		{"changed", good, []Key{document(11, next)}, "30/s, 4/s", false},
		{"deleted", good, []Key{gone(document(0, ""), 11)}, "30/s, none", false},
		{"broken", good, []Key{document(11, bad)}, "30/s, as before", true},
		{"mended", good, []Key{document(11, bad), document(12, next)}, "30/s, as before, 4/s", false},
		{"broken, then deleted", good, []Key{document(11, "{"), gone(document(0, ""), 12)}, "30/s, as before, none", false},
		{"broken when it is listed", bad, nil, "unknown", true},
		{"mended after that", bad, []Key{document(11, next)}, "unknown, 4/s", false},
		{"deleted after that", bad, []Key{gone(document(0, ""), 11)}, "unknown, none", false},
	} {
		var tr Tracker
		got := []string{of(tr.List(10, []Key{policy(5, "100"), document(6, c.listed)}).Overrides)}
		for _, change := range tr.Events(c.events) {
			got = append(got, of(change.Overrides))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
		if err := tr.Problem(); (err != nil) != c.problem || c.problem && !strings.Contains(err.Error(), fmt.Sprintf("document %02d with overrides of keys", bucket)) {
			t.Errorf("%s: the problem is %v", c.name, err)
		}
	}
}
