package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/golden"
)

// maxNames bounds the exported names of consumer, coordinator and quota, without the
// fields of structs: each is a promise from v1 on.
const maxNames = 178

// exported returns a line for each exported name of a package: constants, variables,
// functions, types, and the methods and fields of exported types.
func exported(folder string, trees []*ast.File) (names []string) {
	add := func(format string, args ...any) {
		names = append(names, folder+": "+fmt.Sprintf(format, args...))
	}
	members := func(kind, typ string, list *ast.FieldList) {
		for _, f := range list.List {
			for _, n := range f.Names {
				if n.IsExported() {
					add("%s %s.%s %s", kind, typ, n.Name, types.ExprString(f.Type))
				}
			}
			if of := types.ExprString(f.Type); len(f.Names) == 0 && ast.IsExported(of[strings.LastIndexAny(of, "*.")+1:]) {
				add("%s %s embeds %s", kind, typ, of)
			}
		}
	}
	for _, tree := range trees {
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				signature := strings.TrimPrefix(types.ExprString(d.Type), "func")
				switch receiver := receiverOf(d); {
				case !d.Name.IsExported():
				case receiver == "":
					add("func %s%s", d.Name.Name, signature)
				case ast.IsExported(receiver):
					add("method %s.%s%s", receiver, d.Name.Name, signature)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							if n.IsExported() {
								add("%s %s", d.Tok, n.Name)
							}
						}
					case *ast.TypeSpec:
						if !s.Name.IsExported() {
							continue
						}
						switch t := s.Type.(type) {
						case *ast.StructType:
							add("type %s struct", s.Name.Name)
							members("field", s.Name.Name, t.Fields)
						case *ast.InterfaceType:
							add("type %s interface", s.Name.Name)
							members("method", s.Name.Name, t.Methods)
						default:
							add("type %s%s %s", s.Name.Name, map[bool]string{true: " ="}[s.Assign != token.NoPos], types.ExprString(t))
						}
					}
				}
			}
		}
	}
	return names
}

// receiverOf returns the name of a method's type, and "" for a function.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	return types.ExprString(t)
}

// qualified matches a name of another package.
var qualified = regexp.MustCompile(`\b(\w+)\.[A-Z]\w*`)

// The exported API is testdata/api.txt: a change of it is seen in review.
func TestAPI(t *testing.T) {
	t.Parallel()
	packages := map[string][]*ast.File{}
	internal := map[string]bool{} // packages of ours that nobody else can import
	eachFile(t, func(s source) {
		folder := path.Dir(s.path)
		public := matchesAny([]string{"consumer/...", "coordinator/...", "quota/..."}, folder)
		if public && !s.test() && !strings.Contains(folder+"/", "/internal/") {
			packages[folder] = append(packages[folder], s.tree)
			for _, i := range s.tree.Imports {
				if p := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(p, module) && strings.Contains(p, "/internal/") {
					internal[path.Base(p)] = true
				}
			}
		}
	})
	count := 0
	var all []string
	for folder, trees := range packages {
		names := exported(folder, trees)
		all = append(all, names...)
		if strings.Contains(folder, "/") {
			continue
		}
		for _, n := range names {
			if !strings.HasPrefix(n, folder+": field ") {
				count++
			}
		}
	}
	t.Logf("consumer, coordinator and quota export %d names", count)
	if count > maxNames {
		t.Errorf("more than %d: each name is a promise from v1 on", maxNames)
	}
	if len(internal) == 0 {
		t.Error("no public package imports an internal one: the next check would hold of nothing")
	}
	for _, n := range all {
		for _, used := range qualified.FindAllStringSubmatch(n, -1) {
			if internal[used[1]] {
				t.Errorf("%s: its callers cannot name %s", n, used[0])
			}
		}
	}
	slices.Sort(all)
	golden.Check(t, "api.txt", strings.Join(all, "\n")+"\n")
}

// A name of any kind that is added is seen, and one that is not exported is not.
func TestExportedNames(t *testing.T) {
	t.Parallel()
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", `package p
const A, b = 1, 2
var C int
func D(n int) error { return nil }
func e() {}
type F struct { G, h int; I; *q.S; t }
func (f *F) J() {}
func (f F) k() {}
type l struct{ M int }
func (l) N() {}
type O interface { P(string); q() }
type R = l
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"p: const A", "p: var C", "p: func D(n int) error", "p: type F struct", "p: field F.G int", "p: field F embeds I", "p: field F embeds *q.S",
		"p: method F.J()", "p: type O interface", "p: method O.P func(string)", "p: type R = l"}
	if got := exported("p", []*ast.File{tree}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
