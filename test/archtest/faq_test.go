package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// faqPackages have the errors that docs/faq.md explains.
var faqPackages = []string{"consumer", "coordinator", "coordinator/admin", "quota"}

// faqSpeakers have texts that docs/faq.md quotes, beside faqPackages.
var faqSpeakers = []string{"internal/session", "internal/protocol/cause", "internal/etcdcall", "internal/diagnose", "cmd/quota-admin", "cmd/quota-admin/internal/change"}

var (
	entry      = regexp.MustCompile("(?m)^\\| [^|\n]+ \\| ([^|\n]*)")
	pythonText = regexp.MustCompile(`f"([^"\n]+)"`)
	inBraces   = regexp.MustCompile(`\{\w+\}`)
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	ofPackages = regexp.MustCompile(`^(?:admin|consumer|coordinator|quota)\.`)
	errorName  = regexp.MustCompile(`^(?:Err[A-Z]\w*|[A-Z]\w*Error|Reason[A-Z]\w*)$`)
)

// Every Reason and every exported error of the packages has its entry in docs/faq.md, the second
// cell of a row. The page names no error and no reason that is not there.
func TestTheFAQHasEveryError(t *testing.T) {
	t.Parallel()
	there := faqNames(t)
	b, err := os.ReadFile(filepath.Join(root, "docs/faq.md"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, row := range entry.FindAllStringSubmatch(string(b), -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			name := ofPackages.ReplaceAllString(m[1], "")
			has[name] = true
			if !slices.Contains(there, name) {
				t.Errorf("docs/faq.md has an entry for %s: it is neither a reason nor an error", name)
			}
		}
	}
	for _, name := range there {
		if !has[name] {
			t.Errorf("docs/faq.md has no entry for %s", name)
		}
	}
	for _, m := range codeSpan.FindAllStringSubmatch(string(b), -1) {
		name, _, _ := strings.Cut(ofPackages.ReplaceAllString(m[1], ""), ".")
		if errorName.MatchString(name) && !slices.Contains(there, name) {
			t.Errorf("docs/faq.md names %s: there is no such error", name)
		}
	}
}

// message is a code span of docs/faq.md that is a text of the library: it has several words, and is
// no command.
var message = regexp.MustCompile(`^[a-z0-9].* .* `)

// verb is what a format string fills in.
var verb = regexp.MustCompile(`%(?:\[\d\])?[a-z]`)

// What the page quotes is said by the library, in these words: each message is what a format string
// of it makes, whole.
func TestTheFAQQuotesTheSource(t *testing.T) {
	t.Parallel()
	var forms []*regexp.Regexp
	said := func(text string) {
		if strings.HasSuffix(text, " ") {
			text += "%s" // what follows is joined to it
		}
		parts := verb.Split(text, -1)
		if !regexp.MustCompile(`[a-z]{3}.* .*[a-z]{2}`).MatchString(strings.Join(parts, "")) {
			return
		}
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		forms = append(forms, regexp.MustCompile("^"+strings.Join(parts, ".+")+"$"))
	}
	client, err := os.ReadFile(filepath.Join(root, "clients/python/quotient/__init__.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pythonText.FindAllStringSubmatch(string(client), -1) {
		said(inBraces.ReplaceAllString(m[1], "%s"))
	}
	eachFile(t, func(s source) {
		if s.test() || !slices.Contains(slices.Concat(faqPackages, faqSpeakers), filepath.ToSlash(filepath.Dir(s.path))) {
			return
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			text = strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(text, "consumer: %s"), ": %w"), ":; ")
			said(text)
			return true
		})
	})
	b, err := os.ReadFile(filepath.Join(root, "docs/faq.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(b), "\n## Questions")
	quoted := 0
	for _, m := range codeSpan.FindAllStringSubmatch(table, -1) {
		if !message.MatchString(m[1]) || strings.HasPrefix(m[1], "quota-admin ") || strings.HasPrefix(m[1], "go run ") {
			continue
		}
		quoted++
		if !slices.ContainsFunc(forms, func(f *regexp.Regexp) bool { return f.MatchString(m[1]) }) {
			t.Errorf("docs/faq.md quotes %q: the library does not say so", m[1])
		}
	}
	if quoted < 25 {
		t.Errorf("the page quotes %d messages: this test sees too little", quoted)
	}
}

// faqNames returns the values of the constants of type Reason and the names of the errors.
func faqNames(t *testing.T) (names []string) {
	t.Helper()
	reasons, errs := 0, 0
	eachFile(t, func(s source) {
		if s.test() || !slices.Contains(faqPackages, filepath.ToSlash(filepath.Dir(s.path))) {
			return
		}
		for _, d := range s.tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() && errorName.MatchString(spec.Name.Name) {
						names, errs = append(names, spec.Name.Name), errs+1
					}
				case *ast.ValueSpec:
					of, _ := spec.Type.(*ast.Ident)
					for i, n := range spec.Names {
						switch {
						case g.Tok == token.VAR && errorName.MatchString(n.Name):
							names, errs = append(names, n.Name), errs+1
						case g.Tok == token.CONST && of != nil && of.Name == "Reason" && n.IsExported():
							value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
							if err != nil {
								t.Fatal(err)
							}
							names, reasons = append(names, value), reasons+1
						}
					}
				}
			}
		}
	})
	if reasons == 0 || errs == 0 {
		t.Fatalf("found %d reasons and %d errors: this test sees nothing", reasons, errs)
	}
	return names
}
