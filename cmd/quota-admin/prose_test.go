package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

var (
	block  = regexp.MustCompile("(?ms)^```.*?^```$")
	inline = regexp.MustCompile("(?m)`quota-admin ([^`]+)`|^ {4,}quota-admin (.+)$")
)

// Blocks of commands are played elsewhere. Sentences name commands too, and indented lines have
// some with the reader's own names: each of these exists, with each of its flags.
func TestSentencesNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	root := (&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, env: os.Getenv, format: format.Table}).root()
	checked := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/proof/*.md", "../../deploy/helm/*/*.md", "../../docs/proof/adr/*.md"} {
		pages, err := markdown.Pages(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, _, _ := strings.Cut(page.Text, "\n### Removed\n")
			for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
				words := strings.Fields(m[1] + m[2])
				if words[0] == "help" {
					continue // cobra adds it when a command runs
				}
				command, _, err := root.Find(words)
				if err != nil || command == root && !strings.HasPrefix(words[0], "-") {
					t.Errorf("%s: there is no command in %s", page.Path, m[0])
					continue
				}
				checked++
				for _, word := range words {
					name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
					if strings.HasPrefix(word, "--") && name != "version" && command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil {
						t.Errorf("%s: %s: %s has no flag --%s", page.Path, m[0], command.Name(), name)
					}
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d commands were found in the documents: the pattern is broken", checked)
	}
}
