package readme

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

// root is the folder of the project.
const root = "../.."

// documents are those that show commands.
var documents = []string{"README.md", "SECURITY.md", "DESIGN.md", "docs/*.md", "docs/proof/*.md", "docs/proof/adr/*.md", "bench/README.md", "examples/*/README.md", "deploy/*.md", "deploy/*/*.md", "deploy/helm/*/*.md"}

var (
	continued = regexp.MustCompile(`\\\n\s*`)
	comment   = regexp.MustCompile(`\s+#\s.*$`)
)

// command is a command as a document shows it.
type command struct{ document, text string }

// commands returns every command of the documents, in order.
func commands(t *testing.T) []command {
	t.Helper()
	var list []command
	for _, pattern := range documents {
		pages, err := markdown.Pages(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			name, err := filepath.Rel(root, page.Path)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range typed(page.Text) {
				list = append(list, command{name, line})
			}
		}
	}
	return list
}

// typed returns the commands of a document: the lines of its blocks of shell,
// without comments, those that go on joined.
func typed(text string) []string {
	var list []string
	for _, b := range markdown.Blocks(text) {
		if !slices.Contains([]string{"sh", "bash", "shell", "console"}, b.Language) {
			continue
		}
		for line := range strings.Lines(continued.ReplaceAllString(b.Text, "")) {
			if line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimSpace(line), "")); line != "" && line[0] != '#' {
				list = append(list, line)
			}
		}
	}
	return list
}

func TestTyped(t *testing.T) {
	got := strings.Join(typed("a\n```sh\none --x \\\n    two   # why\n# only this\nthree\n```\n```\nno\n```\n"), "|")
	if want := "one --x two|three"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
