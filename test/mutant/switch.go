package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Switch is the environment variable whose value is the name of the mutant that a program
// of Switched sources plays. Without it the program is not broken.
const Switch = "QUOTIENT_MUTANT"

// Switched returns sources that have many mutants at once, and the mutants that they do
// not have. A function that mutants change has a copy for each of them, and first asks
// which mutant Switch names. Mutants that change anything but bodies of functions are left,
// and so are those of a function that has a parameter without a name.
func (table Table) Switched(root string) (switched Sources, alone Table, err error) {
	files := map[string]*source{}
	for _, m := range table {
		mutated, err := m.Apply(root)
		if err != nil {
			return nil, nil, err
		}
		bodies := map[string]map[int]string{} // that differ, by file and the function's place
		for path, text := range mutated {
			if files[path] == nil {
				before, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
				if err != nil {
					return nil, nil, err
				}
				if files[path], err = parse(path, before); err != nil {
					return nil, nil, err
				}
			}
			after, err := parse(path, text)
			if err != nil {
				return nil, nil, fmt.Errorf("mutant %s does not compile: %w", m.Name, err)
			}
			if bodies[path] = files[path].differs(after); bodies[path] == nil {
				alone = append(alone, m)
				bodies = nil
				break
			}
		}
		for path, changed := range bodies {
			for i, body := range changed {
				files[path].variants[i] = append(files[path].variants[i], variant{m.Name, body})
			}
		}
	}
	switched = Sources{}
	for n, path := range slices.Sorted(maps.Keys(files)) {
		if f := files[path]; len(f.variants) > 0 {
			switched[path] = f.switched(fmt.Sprintf("mutantOn%d", n))
		}
	}
	return switched, alone, nil
}

// variant is what a mutant makes of a function's body.
type variant struct{ mutant, body string }

// source is a file that is cut at its functions' bodies.
type source struct {
	path, text string
	set        *token.FileSet
	file       *ast.File
	functions  []*ast.FuncDecl
	variants   map[int][]variant // by the function's place
}

func parse(path string, text []byte) (*source, error) {
	s := &source{path: path, text: string(text), set: token.NewFileSet(), variants: map[int][]variant{}}
	var err error
	if s.file, err = parser.ParseFile(s.set, path, text, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			s.functions = append(s.functions, f)
		}
	}
	return s, nil
}

// cut returns the text between two positions.
func (s *source) cut(from, to token.Pos) string {
	return s.text[from-s.file.FileStart : to-s.file.FileStart]
}

// parts returns the text that is outside of functions' bodies, and the bodies.
func (s *source) parts() (outside, bodies []string) {
	at := s.file.FileStart
	for _, f := range s.functions {
		outside, bodies = append(outside, s.cut(at, f.Body.Pos())), append(bodies, s.cut(f.Body.Pos(), f.Body.End()))
		at = f.Body.End()
	}
	return append(outside, s.cut(at, s.file.FileEnd)), bodies
}

// differs returns the bodies of another version of the file that are not the same, by the
// function's place. It returns nil if anything else differs, or if one of these functions
// cannot be called with its own arguments.
func (s *source) differs(other *source) map[int]string {
	outside, bodies := s.parts()
	itsOutside, itsBodies := other.parts()
	if !slices.Equal(outside, itsOutside) {
		return nil
	}
	changed := map[int]string{}
	for i := range bodies {
		if bodies[i] == itsBodies[i] {
			continue
		}
		changed[i] = itsBodies[i]
		if c := call(s.functions[i], ""); strings.Contains(c, "_,") || strings.Contains(c, "_.") {
			return nil
		}
	}
	return changed
}

// switched returns the file's text with all variants. Its lines stay where they are. The
// compiler calls those of a variant MUTANT/path. on is a name for the switch.
func (s *source) switched(on string) []byte {
	var out, copies strings.Builder
	out.WriteString(s.cut(s.file.FileStart, s.file.Name.End()) + `; import mutantOS "os"`)
	at := s.file.Name.End()
	for _, i := range slices.Sorted(maps.Keys(s.variants)) {
		f := s.functions[i]
		out.WriteString(s.cut(at, f.Body.Lbrace+1))
		at = f.Body.Lbrace + 1
		for _, v := range s.variants[i] {
			name := "mutant" + v.mutant + "_" + f.Name.Name
			does := "return " + call(f, name)
			if f.Type.Results == nil {
				does = call(f, name) + "; return"
			}
			fmt.Fprintf(&out, " if %s == %q { %s };", on, v.mutant, does)
			fmt.Fprintf(&copies, "\n//line %s/%s:%d\n%s%s%s%s\n", v.mutant, s.path, s.set.Position(f.Pos()).Line,
				s.cut(f.Pos(), f.Name.Pos()), name, s.cut(f.Name.End(), f.Body.Pos()), v.body)
		}
	}
	fmt.Fprintf(&out, "%s\nvar %s = mutantOS.Getenv(%q)\n%s", s.cut(at, s.file.FileEnd), on, Switch, &copies)
	return []byte(out.String())
}

// call calls a function of that name with f's own receiver, type parameters and arguments.
// A parameter without a name is "_".
func call(f *ast.FuncDecl, name string) string {
	names := func(list *ast.FieldList) (all string) {
		for _, field := range list.List {
			if len(field.Names) == 0 {
				all += "_,"
			}
			for _, n := range field.Names {
				all += n.Name + ","
			}
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				all = strings.TrimSuffix(all, ",") + "...,"
			}
		}
		return all
	}
	if f.Recv != nil {
		name = strings.TrimSuffix(names(f.Recv), ",") + "." + name
	}
	if f.Type.TypeParams != nil {
		name += "[" + names(f.Type.TypeParams) + "]"
	}
	return name + "(" + names(f.Type.Params) + ")"
}
