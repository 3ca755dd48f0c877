package archtest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the top of the project, seen from this package.
const root = "../.."

// maxLines bounds a file. It is twice what is aimed at: beyond it a file has
// more than one idea.
const maxLines = 600

// source is one Go file.
type source struct {
	path  string // from root, with slashes
	lines int
	tree  *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// walk calls f for every file of the project whose name ends with ext, nested
// modules included. Paths are from root, with slashes.
func walk(ext string, f func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ext:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if path, err = filepath.Rel(root, path); err != nil {
			return err
		}
		return f(filepath.ToSlash(path), text)
	})
}

// files parses every Go file, once.
var files = sync.OnceValues(func() (all []source, err error) {
	err = walk(".go", func(path string, text []byte) error {
		tree, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, source{path, bytes.Count(text, []byte("\n")), tree})
		return err
	})
	return all, err
})

func eachFile(t *testing.T, f func(s source)) {
	t.Helper()
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		f(s)
	}
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	eachFile(t, func(s source) {
		if s.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: a file has one idea, so that a reader finds it", s.path, s.lines, maxLines)
		}
	})
}

func TestEveryPackageIsDocumentedOnce(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{} // the files with a package comment, by folder
	eachFile(t, func(s source) {
		if s.test() {
			return
		}
		folder := filepath.ToSlash(filepath.Dir(s.path))
		found := docs[folder]
		if s.tree.Doc.Text() != "" {
			found = append(found, s.path)
		}
		docs[folder] = found
	})
	for folder, found := range docs {
		if len(found) != 1 {
			t.Errorf("%s has %d package comments %v: go doc shows them run together, or nothing; write one, in doc.go", folder, len(found), found)
		}
	}
}

// calls returns the names of package path that the file uses.
func (s source) calls(path string) (names []string) {
	local := ""
	for _, i := range s.tree.Imports {
		if strings.Trim(i.Path.Value, `"`) == path {
			local = path[strings.LastIndexByte(path, '/')+1:]
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	if local == "" {
		return nil
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				names = append(names, sel.Sel.Name)
			}
		}
		return true
	})
	return names
}

// In a bubble of testing/synctest a sleep is exact and takes no time. Files that
// have bubbles are trusted to sleep nowhere else.
func TestNoSleepInTests(t *testing.T) {
	t.Parallel()
	eachFile(t, func(s source) {
		if s.test() && len(s.calls("testing/synctest")) == 0 && slices.Contains(s.calls("time"), "Sleep") {
			t.Errorf("%s calls time.Sleep: it is too short on a busy machine and too long on any other; wait for the condition, or sleep in a bubble of testing/synctest", s.path)
		}
	})
}

// rawAtomic are the functions of sync/atomic, as opposed to its types.
var rawAtomic = regexp.MustCompile(`^(Add|And|Or|Load|Store|Swap|CompareAndSwap)`)

func TestAtomicsAreTyped(t *testing.T) {
	t.Parallel()
	eachFile(t, func(s source) {
		for _, name := range s.calls("sync/atomic") {
			if rawAtomic.MatchString(name) {
				t.Errorf("%s calls atomic.%s: a plain variable can also be read without it, and is misaligned on 32 bits; use atomic.Int64 and the like", s.path, name)
			}
		}
	})
}

func TestNoReplace(t *testing.T) {
	t.Parallel()
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = root
	out, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module  struct{ Path string }
		Replace []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Errorf("go.mod is of %s, want %s", mod.Module.Path, module)
	}
	if len(mod.Replace) > 0 {
		t.Errorf("go.mod replaces %v: who imports this module would not get the replacement", mod.Replace)
	}
}

// The rules about source see what they are for.
func TestCalls(t *testing.T) {
	t.Parallel()
	parse := func(text string) source {
		t.Helper()
		tree, err := parser.ParseFile(token.NewFileSet(), "x_test.go", text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return source{"x_test.go", 1, tree}
	}
	for _, test := range []struct{ text, path, want string }{
		{`package x; import "time"; func f() { time.Sleep(time.Second) }`, "time", "Sleep Second"},
		{`package x; import clock "time"; func f() { go clock.Sleep(1) }`, "time", "Sleep"},
		{`package x; import "sync/atomic"; var n int64; var f = atomic.AddInt64`, "sync/atomic", "AddInt64"},
		{`package x; import "sync/atomic"; var n atomic.Int64; func f() { n.Add(1) }`, "sync/atomic", "Int64"},
		{`package x; type T struct{}; func (T) Sleep() {}; var time T; func f() { time.Sleep() }`, "time", ""},
	} {
		if got := strings.Join(parse(test.text).calls(test.path), " "); got != test.want {
			t.Errorf("%s: got %q, want %q", test.text, got, test.want)
		}
	}
}
