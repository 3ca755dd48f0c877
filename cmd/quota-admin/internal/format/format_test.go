package format

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// TestEscaping draws texts with anything in them: whatever the tool shows must
// print, and JSON and YAML must still hold the text that went in.
func TestEscaping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"\u009b31m", "a\u0085b", "\x7f", "\u202e", "\U000e0041", "\x1b]0;x\a", "\xff\xfe", "a\tb\nc", `"x"`, " x ", "", "é", "\u2028", "\ufeff", "12", "null", "on",
		})).Draw(t, "text")
		for name, shown := range map[string]string{"show": Show(text), "clean": Clean(text)} {
			if !Printable(shown) {
				t.Fatalf("%s(%q) = %q, which does not print", name, text, shown)
			}
		}
		var written bytes.Buffer
		if err := JSON.Write(&written, map[string]any{"text": text}); err != nil {
			t.Fatal(err)
		}
		encoded := written.Bytes()
		if plain := strings.ReplaceAll(string(encoded), "\n", ""); !Printable(plain) {
			t.Fatalf("JSON %q does not print", plain)
		}
		var back map[string]string
		if err := json.Unmarshal(encoded, &back); err != nil || back["text"] != jsonText(t, text) {
			t.Fatalf("JSON of %q: %v, back %q", text, err, back["text"])
		}
		var second bytes.Buffer
		if err := YAML.Write(&second, map[string]any{"text": text}); err != nil {
			t.Fatal(err)
		}
		y := second.Bytes()
		if plain := strings.ReplaceAll(string(y), "\n", ""); !Printable(plain) {
			t.Fatalf("YAML %q does not print", plain)
		}
		var fromYAML map[string]string
		if err := yaml.Unmarshal(y, &fromYAML); err != nil || fromYAML["text"] != back["text"] {
			t.Fatalf("YAML of %q: %v, back %q", text, err, fromYAML["text"])
		}
	})
}

// jsonText is text as encoding/json can carry it: bytes that are not UTF-8 are
// replaced.
func jsonText(t *rapid.T, text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// TestALongNameIsCut: one name of thousands of bytes must not make every line of a
// table as wide.
func TestALongNameIsCut(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 3000), strings.Repeat("漢", 3000), strings.Repeat("\x1b", 3000)} {
		if got := Name(name); runewidth.StringWidth(got) > nameWidth {
			t.Errorf("%d columns", runewidth.StringWidth(got))
		}
	}
	if got := Name("payments/charge"); got != "payments/charge" {
		t.Error(got)
	}
}

func TestNatural(t *testing.T) {
	want := []string{"", "a", "a2", "a10", "a10b2", "a10b10", "b1", "worker-9", "worker-10", "worker-010", "worker-11"}
	got := slices.Clone(want)
	slices.Reverse(got)
	if slices.SortFunc(got, Natural); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
