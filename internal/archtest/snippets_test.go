package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A block of Go in a document names the function that it is from, on the line
// before:
//
//	<!-- checked by consumer/httplimit.ExampleTransport -->
//
// Its lines stand in the file that declares that function, in one piece. So what
// readers copy is compiled, and where the function is an example with output, run.
var marked = regexp.MustCompile("(?m)^<!-- checked by (\\S+)\\.(\\w+) -->\n```go\n((?s:.*?))^```$")

func TestSnippetsAreCompiled(t *testing.T) {
	t.Parallel()
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		blocks := marked.FindAllStringSubmatch(string(text), -1)
		if n := strings.Count("\n"+string(text), "\n```go\n"); n != len(blocks) {
			t.Errorf("%s has %d blocks of Go, and %d that say what checks them", path, n, len(blocks))
		}
		for _, b := range blocks {
			checked++
			if !declaresWith(t, b[1], b[2], b[3]) {
				t.Errorf("%s: this is not in the file that declares %s.%s:\n%s", path, b[1], b[2], b[3])
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
