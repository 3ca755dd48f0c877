//go:build e2e && linux

package quotad

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
	"github.com/quotient-limiter/quotient/quota"
)

// examples returns the examples of a client's README in a language, for a socket.
func examples(t *testing.T, client, language, socket string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../clients/" + client + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range markdown.Blocks(string(text)) {
		if b.Language == language {
			list = append(list, strings.ReplaceAll(b.Text, "Client()", `Client("`+socket+`")`))
		}
	}
	return list
}

// The installed clients play the examples of their READMEs.
func TestInstalledClients(t *testing.T) {
	python, node := os.Getenv("QUOTIENT_PYTHON"), os.Getenv("QUOTIENT_NODE")
	if python == "" || node == "" {
		t.Fatal("QUOTIENT_PYTHON and QUOTIENT_NODE name no environments: .ci/run quotad makes them")
	}
	policy, err := quota.ParseLimits("600/s")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := quota.ParseLimits("60000/s")
	if err != nil {
		t.Fatal(err)
	}
	_, quotad, socket, _ := setUp(t, map[string]quota.Policy{"payments/charge": {Limits: policy}, "llm/requests": {Limits: policy}, "llm/tokens": {Limits: tokens}})
	quotad()
	play := func(want []string, command func() *exec.Cmd) {
		t.Helper()
		await.Until(t, "the example says "+want[0], func() bool { // quotad joins first
			out, err := command().CombinedOutput()
			text := string(out)
			for _, line := range want {
				if err != nil || !strings.Contains(text, line) {
					t.Logf("%v: %s", err, out)
					return false
				}
			}
			return true
		})
	}
	says := [][]string{{"a permit\n", "10 calls with one batch\n", "one request, and 350 tokens\n"}, {"10 permits at the same time, and a batch\n"}}
	all := examples(t, "python", "python", socket)
	if len(all) != len(says) {
		t.Fatalf("%d examples of Python", len(all))
	}
	for i, text := range all {
		play(says[i], func() *exec.Cmd { return exec.Command(python, "-I", "-c", text) })
	}
	all = examples(t, "typescript", "js", socket)
	if len(all) != 1 {
		t.Fatalf("%d examples of TypeScript", len(all))
	}
	file := filepath.Join(node, "example.mjs")
	if err := os.WriteFile(file, []byte(all[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	play(says[0], func() *exec.Cmd { return exec.Command("node", file) })
}

// Python's stubs know each parameter of the methods that the client has.
func TestPythonStubs(t *testing.T) {
	python := os.Getenv("QUOTIENT_PYTHON")
	if python == "" {
		t.Fatal("QUOTIENT_PYTHON names no environment: .ci/run quotad makes it")
	}
	out, err := exec.Command(python, "-I", "-c", `
import ast, inspect, pathlib, quotient, quotient.aio
folder = pathlib.Path(quotient.__file__).parent
assert (folder / "py.typed").exists()
stubs = {c.name: {f.name: [a.arg for a in f.args.args + ([f.args.vararg] if f.args.vararg else [])] for f in c.body if isinstance(f, ast.FunctionDef)}
         for c in ast.parse((folder / "__init__.pyi").read_text()).body if isinstance(c, ast.ClassDef)}
for of, name in ("Client", "acquire"), ("Client", "acquire_all"), ("Granted", "settle"), ("Permits", "take"):
    real = list(inspect.signature(getattr(getattr(quotient, of), name)).parameters)
    assert stubs[of][name] == real, (name, real, stubs[of][name])
    aio = list(inspect.signature(getattr(getattr(quotient.aio, of), name)).parameters)
    assert aio == real, (name, real, aio)
`).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
