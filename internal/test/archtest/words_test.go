package archtest

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxReadme   = 900   // words
	maxPage     = 1_800 // words of any other page
	maxSentence = 32    // words
)

// longer are pages without a bound: a paper.
var longer = []string{"docs/protocol.md"}

var (
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	quoted   = regexp.MustCompile(`(?m)^(#|\||    |\t| *>).*$`) // titles, tables, blocks, formulas
	bullet   = regexp.MustCompile(`(?m)^ *([-*]|\d+\.) `)
	address  = regexp.MustCompile(`\]\([^)]*\)`)
	gap      = regexp.MustCompile(`\n[ \t]*\n`)
	sentence = regexp.MustCompile(`[.!?:;][)"*]*\s+`)
	nounless = regexp.MustCompile(`^(What|Who|Whoever|Whatever)\b[^?]*$`)
)

// A sentence of a document or of a product's comment has at most 32 words. A clause ends
// one too. None begins with what or who in place of a noun.
func TestSentences(t *testing.T) {
	t.Parallel()
	if err := walk(".md", func(path string, text []byte) error {
		most := maxPage
		if path == "README.md" {
			most = maxReadme
		}
		if n := len(bytes.Fields(text)); n > most && !slices.Contains(longer, path) {
			t.Errorf("%s has %d words, %d are allowed: split it by the reader's task", path, n, most)
		}
		plain := quoted.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
		checkSentences(t, path, bullet.ReplaceAllString(plain, "\n\n"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	eachFile(t, func(s source) {
		if s.test() {
			return
		}
		for _, c := range s.tree.Comments {
			checkSentences(t, s.path, bullet.ReplaceAllString(quoted.ReplaceAllString(c.Text(), ""), "\n\n"))
		}
	})
}

func checkSentences(t *testing.T, path, text string) {
	t.Helper()
	for _, paragraph := range gap.Split(text, -1) {
		for _, s := range sentence.Split(address.ReplaceAllString(paragraph, "]"), -1) {
			if n := len(strings.Fields(s)); n > maxSentence {
				t.Errorf("%s: %d words: %s", path, n, s)
			}
			if s = strings.TrimSpace(s); nounless.MatchString(s) {
				t.Errorf("%s: begins without a noun: %s", path, s)
			}
		}
	}
}
