package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The most files that an event, and a call, passes on its way to a permit: whoever follows one reads so many.
const (
	mostFromEvent = 9
	mostFromCall  = 5
)

var (
	goFile  = regexp.MustCompile("`([a-z/]+\\.go)`")
	drawn   = regexp.MustCompile(`(?m)^(\d+)  (\S+\.go) +(\S+(?:, \S+)*)  `)
	sameWay = regexp.MustCompile(`steps 1 to (\d+)`)
)

// DESIGN.md walks an event and a call to a permit of each kind. Each file of a walk is there, each function of the
// picture is in the file beside it, and no walk is longer than a reader can keep in mind.
func TestWalksAreShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## From an etcd event to a permit\n")
	section, _, _ = strings.Cut(section, "\nOther paths:\n")

	steps := drawn.FindAllStringSubmatch(section, -1)
	if n := strings.Count(section, ".go  "); n == 0 || n != len(steps) || len(steps) > mostFromEvent {
		t.Errorf("the picture has %d steps, and %d of them can be read: at most %d are allowed", n, len(steps), mostFromEvent)
	}
	for i, step := range steps {
		if step[1] != strconv.Itoa(i+1) {
			t.Errorf("step %d of the picture is numbered %s", i+1, step[1])
		}
		source := sourceOf(t, step[2])
		for name := range strings.SplitSeq(step[3], ", ") {
			of, function, _ := strings.Cut(name, ".")
			if !regexp.MustCompile(`(?m)^func \(\w+ \*?` + of + `\) ` + function + `\(`).MatchString(source) {
				t.Errorf("%s has no %s", step[2], name)
			}
		}
	}

	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || !strings.Contains(line, ".go`") {
			continue
		}
		rows++
		if files := filesOf(t, line); len(files) > mostFromCall {
			t.Errorf("a call passes %d files, at most %d are allowed: %q", len(files), mostFromCall, files)
		}
	}
	items := strings.Split(section, "\n- **")[1:]
	for _, item := range items {
		n := len(filesOf(t, item))
		if same := sameWay.FindStringSubmatch(item); same != nil {
			first, _ := strconv.Atoi(same[1])
			n += first
		}
		if n > mostFromEvent {
			name, _, _ := strings.Cut(item, "**")
			t.Errorf("an event for a permit %q passes %d files, at most %d are allowed", name, n, mostFromEvent)
		}
	}
	if rows == 0 || len(items) == 0 {
		t.Errorf("%d calls and %d events are walked to a permit", rows, len(items))
	}
}

// filesOf returns the files that a text names, each once.
func filesOf(t *testing.T, text string) (all []string) {
	t.Helper()
	for _, m := range goFile.FindAllStringSubmatch(text, -1) {
		if sourceOf(t, m[1]); !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	return all
}

// sourceOf returns the text of a file that DESIGN.md names: from the top, or from internal.
func sourceOf(t *testing.T, path string) string {
	t.Helper()
	for _, folder := range []string{root, filepath.Join(root, "internal")} {
		if text, err := os.ReadFile(filepath.Join(folder, path)); err == nil {
			return string(text)
		}
	}
	t.Errorf("DESIGN.md names %s, which is not there", path)
	return ""
}
