package archtest

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

const (
	maxWords    = 20_000 // of all Markdown
	maxSentence = 25     // words
)

var (
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	quoted   = regexp.MustCompile(`(?m)^(#|\||    |\t| *>).*$`) // titles, tables, blocks, formulas
	bullet   = regexp.MustCompile(`(?m)^ *([-*]|\d+\.) `)
	address  = regexp.MustCompile(`\]\([^)]*\)`)
	gap      = regexp.MustCompile(`\n[ \t]*\n`)
	sentence = regexp.MustCompile(`[.!?:;][)"*]*\s+`)
	nounless = regexp.MustCompile(`^(What|Who|Whoever|Whatever)\b[^?]*$`)
)

// A sentence of a document or of a product's comment has at most 25 words. A clause ends
// one too. None begins with what or who in place of a noun.
func TestSentences(t *testing.T) {
	t.Parallel()
	words := 0
	if err := walk(".md", func(path string, text []byte) error {
		words += len(bytes.Fields(text))
		plain := quoted.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
		checkSentences(t, path, bullet.ReplaceAllString(plain, "\n\n"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if words > maxWords {
		t.Errorf("%d words of Markdown, %d are allowed: shorten", words, maxWords)
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
