package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	unlinked = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	pageName = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
)

// A link of a document to a file of this repository reaches it, and its title. A page that
// a comment or a message names is there.
func TestLinksReachSomething(t *testing.T) {
	t.Parallel()
	seen := 0
	if err := walk(".md", func(path string, text []byte) error {
		plain := fenced.ReplaceAllString(string(text), "")
		for _, m := range link.FindAllStringSubmatch(plain, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			seen++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			checkLink(t, path, target, anchor)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := walk(".go", func(path string, text []byte) error {
		for _, page := range pageName.FindAllString(string(text), -1) {
			checkLink(t, path, page, "")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no document has a link: this test sees nothing")
	}
}

// checkLink fails unless the file is there and has the title.
func checkLink(t *testing.T, from, target, anchor string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, target)); err != nil {
		t.Errorf("%s names %s, which is not there", from, target)
		return
	}
	if anchor == "" {
		return
	}
	text, err := os.ReadFile(filepath.Join(root, target))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if anchorOf(m[1]) == anchor {
			return
		}
	}
	t.Errorf("%s links to %s#%s, and no title there has that name", from, target, anchor)
}

// anchorOf returns the name by which GitHub and most sites link to a title.
func anchorOf(title string) string {
	return strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// A page for users links into the proof in its last paragraph alone: nobody needs the proof to use
// the thing.
func TestPagesForUsersNeedNoProof(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		paragraphs := strings.Split(strings.TrimSpace(string(text)), "\n\n")
		for _, p := range paragraphs[:len(paragraphs)-1] {
			if strings.Contains(p, "](proof/") {
				t.Errorf("%s links into the proof before its end: %s", page, p)
			}
		}
	}
}
