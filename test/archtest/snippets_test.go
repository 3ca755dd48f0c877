package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

// A block of Go in a document names the function that it is from, on the line
// before:
//
//	<!-- checked by consumer/httplimit.ExampleTransport -->
//
// Its lines stand in the file that declares that function, in one piece. So what
// readers copy is compiled, and where the function is an example with output, run. A difference,
// "-" and "+", names two functions if its lines are Go: the one from which it goes, and the one to
// which.
var checkedBy = regexp.MustCompile(`^<!-- checked by (\S+)\.(\w+)(?: and (\S+)\.(\w+))? -->$`)

func TestSnippetsAreCompiled(t *testing.T) {
	t.Parallel()
	checked := 0
	err := walk(".md", func(path string, text []byte) error {
		for _, b := range markdown.Blocks(string(text)) {
			if b.Language != "go" && b.Language != "diff" {
				continue
			}
			checked++
			switch by := checkedBy.FindStringSubmatch(b.Above); {
			case by == nil:
				t.Errorf("%s: the line above this does not say what checks it:\n%s", path, b.Text)
			case b.Language == "diff":
				if by[3] != "" && (!declaresWith(t, by[1], by[2], side(b.Text, '-')) || !declaresWith(t, by[3], by[4], side(b.Text, '+'))) {
					t.Errorf("%s: a side of this is not in the file that declares %s.%s, or %s.%s:\n%s", path, by[1], by[2], by[3], by[4], b.Text)
				}
			case !declaresWith(t, by[1], by[2], b.Text):
				t.Errorf("%s: this is not in the file that declares %s.%s:\n%s", path, by[1], by[2], b.Text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Error("no document has a block of Go: this test sees nothing")
	}
}

// side returns the lines of a difference that are marked by the sign, and those of both sides.
func side(difference string, sign byte) string {
	var b strings.Builder
	for line := range strings.Lines(difference) {
		if line[0] == sign || line[0] == ' ' {
			b.WriteString(line[1:])
		}
	}
	return b.String()
}

// declaresWith reports whether the file in folder that declares the function
// contains the lines, whatever their indentation.
func declaresWith(t *testing.T, folder, function, lines string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+function+"(") {
			return strings.Contains(flat(string(text)), flat(lines))
		}
	}
	return false
}

// directive is a comment for a linter, which documents leave out.
var directive = regexp.MustCompile(`//nolint:\S+ `)

// flat takes away what may differ between a document and the source.
func flat(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(directive.ReplaceAllString(line, "")); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// TestTheFirstTwoCommands: README begins with the checkout and the main job, then with the tests. Whoever opens it on a
// new machine types these.
func TestTheFirstTwoCommands(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, b := range markdown.Blocks(string(page)) {
		if b.Language == "sh" {
			commands = append(commands, strings.TrimSpace(b.Text))
		}
	}
	for i, want := range []string{"go run ./cmd/loadgen --least-use 90", "go test ./..."} {
		if i >= len(commands) || !strings.HasSuffix(commands[i], want) {
			t.Errorf("command %d of README does not end with %s: %q", i+1, want, commands)
		}
	}
}
