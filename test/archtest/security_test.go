package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestSecurityNamesTestsThatExist: the table of attacks is worth as much as the
// tests that it names.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/proof/attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	eachFile(t, func(s source) {
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test() && f.Recv == nil {
				known[f.Name.Name] = true
			}
		}
	})
	named := namedTest.FindAllSubmatch(text, -1)
	for _, m := range named {
		if name := string(m[1]); !known[name] {
			t.Errorf("docs/proof/attacks.md names %s: there is no such test", name)
		}
	}
	if len(named) == 0 {
		t.Error("docs/proof/attacks.md names no test")
	}
}
