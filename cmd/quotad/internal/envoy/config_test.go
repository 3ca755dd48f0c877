package envoy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

func TestBadRules(t *testing.T) {
	t.Parallel()
	const rule = "- {domain: d, entries: [{key: k}], provider: p}\n"
	for _, c := range []struct{ text, want string }{
		{"", "there is no rule"},
		{"descriptors: [", "yaml: line 1"},
		{"descriptor: []", "line 1: field descriptor not found"},
		{"max_wait: 1s\ndescriptors:\n- {domain: d, entries: [{kex: k}], provider: p}", "line 3: field kex not found"},
		{"descriptors: []\ndescriptors: []", "line 2: field descriptors already set"},
		{"descriptors:\n" + rule + "- {domain: d, entries: [{key: k}]}", "descriptors[1]: provider: "},
		{"descriptors:\n- {entries: [{key: k}], provider: p}", "descriptors[0]: domain is missing"},
		{"descriptors:\n- {domain: d, provider: p}", "descriptors[0]: a key is missing"},
		{"descriptors:\n- {domain: d, entries: [{key: k}, {value: v}], provider: p}", "descriptors[0]: a key is missing"},
		{"descriptors:\n- {domain: d, entries: [{key: k}], provider: p, name: é}", "descriptors[0]: Name is"},
		{"descriptors:\n- {domain: d, entries: [" + strings.Repeat("{key: k},", 17) + "], provider: p}", "17 keys, at most 16"},
		{"descriptors:\n" + strings.Repeat(rule, maxRules+1), "1001 rules, at most 1000"},
		{"descriptors:\n- {domain: d, entries: [{key: k}], provider: a//b}", "descriptors[0]: provider: "},
		{"descriptors:\n- {domain: d, entries: [{key: k}], provider: p, class: gold}", `descriptors[0]: class: "gold" must be critical, default or sheddable`},
		{"descriptors:\n- {domain: d, entries: [{key: k}], provider: p, key_from: l}", `descriptors[0]: key_from: no entry has the key "l"`},
		{"descriptors:\n- {domain: d, entries: [{key: k}], provider: p, label_from: l}", `descriptors[0]: label_from: no entry has the key "l"`},
		{"buckets: []\ndescriptors:\n" + rule, "line 1: field buckets not found"},
		{"max_wait: 11s\ndescriptors:\n" + rule, `max_wait: "11s" must be a time from 0s to 10s`},
		{"max_wait: soon\ndescriptors:\n" + rule, `max_wait: "soon" must be`},
		{strings.Repeat("#", maxFile+1), "1048577 bytes are more than 1048576"},
	} {
		file := write(t, c.text)
		if _, err := load(file); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%.60q: %v, not %s", c.text, err, c.want)
		}
	}
}

// The document shows lines of the configurations that test/envoy gives to real Envoys.
func TestTheDocumentShowsTheExamples(t *testing.T) {
	t.Parallel()
	const root = "../../../../"
	read := func(file string) string {
		text, err := os.ReadFile(root + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	examples := read("examples/envoy/rules.yaml") + read("examples/envoy/ratelimit.yaml")
	shown := 0
	for _, b := range markdown.Blocks(read("docs/quotad.md")) {
		if b.Language != "yaml" {
			continue
		}
		shown++
		if !regexp.MustCompile(`(?m)^ *` + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(b.Text)), "\n", "\n *") + `$`).MatchString(examples) {
			t.Errorf("no example has these lines:\n%s", b.Text)
		}
	}
	if shown != 2 {
		t.Errorf("%d blocks, not 2", shown)
	}
	if _, err := load(root + "examples/envoy/rules.yaml"); err != nil {
		t.Error(err)
	}

	// Of the rules that replace those of another service, docs/compare.md has a difference.
	replaced := 0
	for _, b := range markdown.Blocks(read("docs/compare.md")) {
		if !strings.Contains(b.Above, "cmd/quotad/internal/envoy.") {
			continue
		}
		replaced++
		var rules strings.Builder
		for line := range strings.Lines(b.Text) {
			if line[0] != '-' {
				rules.WriteString(line[1:])
			}
		}
		if _, err := load(write(t, rules.String())); err != nil {
			t.Errorf("%v:\n%s", err, b.Text)
		}
	}
	if replaced != 1 {
		t.Errorf("docs/compare.md shows %d blocks of rules, not 1", replaced)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	good := write(t, "descriptors: [{domain: d, entries: [{key: k}], provider: p}]")
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--envoy /run/q.sock --envoy-rules " + good, ""},
		{"--envoy 127.0.0.1:0 --envoy-rules " + good, "--envoy 127.0.0.1:0: needs --tls-cert, --tls-key and --tls-client-ca; a Unix socket needs none"},
		{"--envoy [::1]:0 --envoy-rules " + good, "needs --tls-cert"},
		{"--envoy [::1]:0 --tls-cert c --tls-key k --tls-client-ca a --envoy-rules " + good, ""},
		{"--envoy 127.0.0.1:0", "give both or none"},
		{"--envoy-rules x", "give both or none"},
		{"--envoy q.sock --envoy-rules " + good, "must be an absolute path or host:port"},
		{"--envoy 127.0.0.1:1:2 --envoy-rules " + good, "must be an absolute path or host:port"},
		{"--envoy :8081 --envoy-rules " + good, "needs --tls-cert"},
		{"--envoy /q.sock --envoy-rules /none", "--envoy-rules: open /none"},
	} {
		f := Flags{TLS: &listen.TLS{}}
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.TLS.Register(set)
		f.Register(set)
		if err := set.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		err := f.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, not %s", c.args, err, c.want)
		}
	}
}
