//go:build e2e && linux

package quotad

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

// socketOf is the socket of the documents. The test has one of its own in its place.
const socketOf = "/tmp/quotad.sock"

// The documents with programs: the clients' READMEs, and the page of quotad.
const (
	ofPython     = "clients/python/README.md"
	ofTypeScript = "clients/typescript/README.md"
	ofQuotad     = "docs/quotad.md"
)

// blocks returns the blocks of a document in a language.
func blocks(t *testing.T, document, language string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range markdown.Blocks(string(text)) {
		if b.Language == language {
			list = append(list, b.Text)
		}
	}
	return list
}

// examples returns the examples of a client's README in a language, for a socket.
func examples(t *testing.T, readme, language, socket string) (list []string) {
	t.Helper()
	for _, text := range blocks(t, readme, language) {
		if !strings.Contains(text, socketOf) {
			t.Errorf("an example of %s names another socket than %s", readme, socketOf)
		}
		list = append(list, strings.ReplaceAll(text, socketOf, socket))
	}
	return list
}

// The installed clients play their READMEs: the commands, with quota-admin dev, and the examples.
// Then they play the programs of the page of quotad.
func TestInstalledClients(t *testing.T) {
	python, node := os.Getenv("QUOTIENT_PYTHON"), os.Getenv("QUOTIENT_NODE")
	if python == "" || node == "" {
		t.Fatal("QUOTIENT_PYTHON and QUOTIENT_NODE name no environments: .ci/run quotad makes them")
	}
	socket := followTheSteps(t)
	play := func(want []string, command func() *exec.Cmd) []byte {
		t.Helper()
		out, err := command().CombinedOutput()
		for _, line := range want {
			if err != nil || !strings.Contains(string(out), line) {
				t.Errorf("%v, or it does not say %q: %s", err, line, out)
			}
		}
		return out
	}
	says := [][]string{{"a permit\n", " calls with one batch\n", "one request, and 350 tokens\n"}, {"10 permits at the same time, and a batch\n"}}
	all := examples(t, ofPython, "python", socket)
	if len(all) != len(says) {
		t.Fatalf("%d examples of Python", len(all))
	}
	for i, text := range all {
		out := play(says[i], func() *exec.Cmd { return exec.Command(python, "-I", "-X", "dev", "-c", text) })
		if bytes.Contains(out, []byte("Warning")) { // such as of a connection that is left open
			t.Errorf("Python warns: %s", out)
		}
	}
	all = examples(t, ofTypeScript, "js", socket)
	if len(all) != 1 {
		t.Fatalf("%d examples of TypeScript", len(all))
	}
	file := filepath.Join(node, "example.mjs")
	if err := os.WriteFile(file, []byte(all[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	play(says[0], func() *exec.Cmd { return exec.Command("node", file) })

	// The blocks of Python on the page are one program, which needs the reader's own functions.
	own := "import types\ndef charge(): print('charged')\ndef ask_model(): return types.SimpleNamespace(tokens=350)\n"
	program := own + strings.ReplaceAll(strings.Join(blocks(t, ofQuotad, "python"), "\n"), socketOf, socket) + "print('settled')\n"
	play([]string{"job 1999\n", "charged\n", "settled\n"}, func() *exec.Cmd { return exec.Command(python, "-I", "-c", program) })
	all = blocks(t, ofQuotad, "js")
	if len(all) != 1 {
		t.Fatalf("%d programs of TypeScript on the page", len(all))
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(all[0], socketOf, socket)), 0o600); err != nil {
		t.Fatal(err)
	}
	play([]string{"job 1999\n"}, func() *exec.Cmd { return exec.Command("node", file) })

	// Without quotad the first lines of an example say so at once, and what to do.
	nobody := filepath.Join(t.TempDir(), "quotad.sock")
	began := time.Now()
	for _, c := range []struct {
		cmd  *exec.Cmd
		want string
	}{
		{exec.Command(python, "-I", "-c", strings.ReplaceAll(blocks(t, ofPython, "python")[0], socketOf, nobody)), "(No such file or directory): start it, or pass Client(path)\n"},
		{exec.Command("node", "--input-type=module", "-e", strings.ReplaceAll(blocks(t, ofTypeScript, "js")[0], socketOf, nobody)), "(no such file or directory): start it, or pass new Client(path)\n"},
	} {
		c.cmd.Dir = node
		out, _ := c.cmd.CombinedOutput()
		if want := "no quotad at " + nobody + " " + c.want; !strings.Contains(string(out), want) || !strings.Contains(string(out), "try again in 1 s\n") {
			t.Errorf("%q does not say %q", out, want)
		}
	}
	t.Logf("both say so within %v", time.Since(began))
}

// The blocks of TypeScript, and those of JavaScript too, compile as they are printed under --strict, in a project that has
// Node.js's types. What they do not declare, the README has before, or is the reader's own.
func TestTypeScriptCompiles(t *testing.T) {
	node, script := os.Getenv("QUOTIENT_NODE"), os.Getenv("QUOTIENT_TYPESCRIPT")
	if node == "" || script == "" {
		t.Fatal("QUOTIENT_NODE and QUOTIENT_TYPESCRIPT name no environments: .ci/run quotad makes them")
	}
	tools := filepath.Join(filepath.Dir(script), "../node_modules")
	const before = `import { Client } from "quotient-client";
const quotad = new Client();
declare function askModel(options: { timeout: number }): Promise<string>;
`
	programs := slices.Concat(blocks(t, ofTypeScript, "js"), blocks(t, ofQuotad, "js"))
	for _, text := range blocks(t, ofTypeScript, "ts") {
		programs = append(programs, before+text)
	}
	if len(programs) != 4 {
		t.Fatalf("%d programs", len(programs))
	}
	for _, text := range programs {
		file := filepath.Join(node, "compiles.mts")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(filepath.Join(tools, ".bin/tsc"), "--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--typeRoots", filepath.Join(tools, "@types"), "--types", "node", "compiles.mts")
		c.Dir = node
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, text)
		}
	}
}

// followTheSteps plays the commands of both READMEs, which are the same but for the one that
// installs a client, and returns the socket of their quotad.
func followTheSteps(t *testing.T) (socket string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "../../cmd/quota-admin", "../../cmd/quotad").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	addresses, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUOTIENT_ENDPOINTS", "http://"+addresses[0]) // in place of the port of dev, which may be in use
	socket = filepath.Join(dir, "quotad.sock")
	var steps [2][]string
	for i, readme := range []string{ofPython, ofTypeScript} {
		for _, block := range blocks(t, readme, "sh") {
			for line := range strings.Lines(block) {
				command, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
				steps[i] = append(steps[i], strings.Join(strings.Fields(command), " "))
			}
		}
	}
	want := []string{"go run ./cmd/quota-admin dev", "go run ./cmd/quota-admin set demo/tokens 50000/s", "go run ./cmd/quotad --socket " + socketOf + " --provider demo/api,demo/tokens"}
	ci, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range steps {
		if len(all) != len(want)+2 || !slices.Equal(all[:len(want)], want) {
			t.Fatalf("the steps are %q", all)
		}
		for _, installs := range all[len(want):] { // in environments that have nothing else
			if !bytes.Contains(ci, []byte("\n        "+installs+"\n")) {
				t.Errorf(".ci/run quotad installs otherwise than by %q", installs)
			}
		}
	}
	command := func(line string, more ...string) *exec.Cmd {
		args := append(strings.Fields(strings.ReplaceAll(line, socketOf, socket))[2:], more...)
		return exec.Command(filepath.Join(dir, filepath.Base(args[0])), args[1:]...)
	}
	var said bytes.Buffer
	start(t, command(want[0], "--listen", addresses[0], "--dashboard", "127.0.0.1:0"), &said)
	await.Until(t, "dev has its provider", func() bool {
		return command("go run ./cmd/quota-admin get demo/api").Run() == nil
	})
	if out, err := command(want[1]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	start(t, command(want[2]), &said)
	await.Until(t, "quotad has a socket", func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
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

// asking returns programs of the installed clients, each of which asks for a permit at a socket, with a timeout, and prints
// the error. They start in the folder that is returned too.
func asking(t *testing.T) (programs [][]string, in string) {
	t.Helper()
	python, node := os.Getenv("QUOTIENT_PYTHON"), os.Getenv("QUOTIENT_NODE")
	if python == "" || node == "" {
		t.Fatal("QUOTIENT_PYTHON and QUOTIENT_NODE name no environments: .ci/run quotad makes them")
	}
	const threads = `
import quotient, sys
try: quotient.Client(sys.argv[1]).acquire("p", timeout=float(sys.argv[2]))
except (quotient.Limited, quotient.Refused) as e: print(f"{type(e).__name__}: {e}")
`
	const tasks = `
import asyncio, quotient.aio, sys
try: asyncio.run(quotient.aio.Client(sys.argv[1]).acquire("p", timeout=float(sys.argv[2])))
except (quotient.Limited, quotient.Refused) as e: print(f"{type(e).__name__}: {e}")
`
	const typescript = `import { Client } from "quotient-client";
await new Client(process.argv[1]).acquire("p", { timeout: Number(process.argv[2]) }).catch((e) => console.log(e.constructor.name + ": " + e.message));`
	return [][]string{{python, "-I", "-c", threads}, {python, "-I", "-c", tasks}, {"node", "--input-type=module", "-e", typescript}}, node
}

// says plays a program of asking, and returns what it prints.
func says(t *testing.T, in string, program ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Dir = in
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// A missing quotad is an error of its own: at once where there is no socket and was none, and after
// the timeout where one refuses, as it restarts.
func TestUnavailable(t *testing.T) {
	programs, in := asking(t)
	dir := t.TempDir()
	refuses, missing := filepath.Join(dir, "refuses.sock"), filepath.Join(dir, "missing.sock")
	l, err := net.Listen("unix", refuses)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	for _, program := range programs {
		for _, c := range []struct {
			socket, timeout, want string
			least                 time.Duration
		}{{missing, "3600", "no such file or directory", 0}, {refuses, "1", "connection refused", 900 * time.Millisecond}} {
			began := time.Now()
			out := says(t, in, append(program, c.socket, c.timeout)...)
			took := time.Since(began)
			if want := "Unavailable: no quotad at " + c.socket + " (" + c.want + "): start it, or pass "; !strings.HasPrefix(strings.ToLower(out), strings.ToLower(want)) || took < c.least {
				t.Errorf("%s, %s: %s after %v", program[0], c.socket, out, took)
			}
		}
	}
}

// What a client does with an answer that is no permit: it asks again where a permit may come within its timeout, a last
// time at its end where nobody knows when, and otherwise it refuses at once. An answer whose window has ended is asked for
// again in any case, once, as the next window may have permits.
func TestWhenClientsAskAgain(t *testing.T) {
	programs, in := asking(t)
	const grant, ended, paused = `{"permits":1,"until":"2000-01-01T00:00:00Z","expires_in":3600}`, `{"permits":1,"until":"2000-01-01T00:00:00Z","expires_in":0}`, `{"detail":"paused by ann","retry_after":1}`
	for name, c := range map[string]struct {
		timeout string
		answer  func(asks int64, wait float64) (status int, body string)
		want    string // what the client says; nothing if it has a permit
		asks    int64  // 0: any number
	}{
		"paused until the end": {"2.5", func(_ int64, wait float64) (int, string) {
			if wait > 0.1 { // Node's timers may be some milliseconds early
				return http.StatusServiceUnavailable, paused
			}
			return http.StatusOK, grant
		}, "", 0},
		"paused": {"2.5", func(int64, float64) (int, string) { return http.StatusServiceUnavailable, paused }, "Limited: paused by ann", 0},
		"paused until a known time": {"60", func(int64, float64) (int, string) {
			return http.StatusServiceUnavailable, `{"detail":"the provider asked for a pause","retry_after":300}`
		}, "Limited: the provider asked for a pause", 1},
		"used up": {"60", func(int64, float64) (int, string) {
			return http.StatusTooManyRequests, `{"detail":"used up","retry_after":300}`
		}, "Limited: used up", 1},
		"without a timeout": {"0", func(int64, float64) (int, string) { return http.StatusServiceUnavailable, paused }, "Limited: paused by ann", 1},
		"at a window's end": {"0", func(asks int64, _ float64) (int, string) {
			if asks == 1 {
				return http.StatusOK, ended
			}
			return http.StatusOK, grant
		}, "", 2},
		"slow": {"0", func(int64, float64) (int, string) { return http.StatusOK, ended }, "Limited: quotad's answer took ", 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, program := range programs {
				var asks atomic.Int64
				_, socket := served(t, func(w http.ResponseWriter, r *http.Request) {
					var call struct {
						MaxWait float64 `json:"max_wait"`
					}
					if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
						t.Error(err)
					}
					status, body := c.answer(asks.Add(1), call.MaxWait)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})
				out := says(t, in, append(program, socket, c.timeout)...)
				// A busy machine may answer the ask before the last one after the timeout. So it is tried again.
				for tries := 1; c.want == "" && out != "" && tries < 5; tries++ {
					asks.Store(0)
					out = says(t, in, append(program, socket, c.timeout)...)
				}
				if !strings.HasPrefix(out, c.want) || c.want == "" && out != "" || c.asks > 0 && asks.Load() != c.asks {
					t.Errorf("%v says %q after %d asks, want %q after %d", program[:2], out, asks.Load(), c.want, c.asks)
				}
			}
		})
	}
}

// A user who may not use the socket is told at once whose group he lacks: to start quotad, or to wait, helps nothing.
func TestASocketOfAnotherGroup(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "quotad.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(socket, 0); err != nil { // its owner may not use it either
		t.Fatal(err)
	}
	var ordinary []string
	if os.Getuid() == 0 { // who may do anything, but for this
		ordinary = []string{"setpriv", "--bounding-set=-dac_override,-dac_read_search"}
		if err := os.Chown(socket, -1, 4711); err != nil {
			t.Fatal(err)
		}
	}
	programs, in := asking(t)
	for _, program := range programs {
		out := says(t, in, append(slices.Concat(ordinary, program), socket, "3600")...)
		who, what, found := strings.Cut(out, " may not use quotad's socket "+socket+": add it to the group of the socket, ")
		group, then, _ := strings.Cut(what, ",")
		if !found || !strings.HasPrefix(who, "Refused: the user ") || then != " and start this program again\n" || ordinary != nil && group != "4711" {
			t.Errorf("%s: %s", program[0], out)
		}
	}
	folder := filepath.Join(t.TempDir(), "closed")
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) }) // so that it can be removed
	if err := os.Mkdir(folder, 0); err != nil {       // to its group too
		t.Fatal(err)
	}
	hidden := filepath.Join(folder, "quotad.sock")
	for _, program := range programs {
		out := says(t, in, append(slices.Concat(ordinary, program), hidden, "3600")...)
		who, what, _ := strings.Cut(out, " may not enter ")
		if !strings.HasPrefix(who, "Refused: the user ") || what != folder+", in which quotad's socket "+hidden+" is: give it a group of that user, and mode 0750\n" {
			t.Errorf("%s: %s", program[0], out)
		}
	}
}
