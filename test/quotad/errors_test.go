//go:build e2e && linux

package quotad

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// programs are the three clients, each with a program that prints its errors.
func programs(t *testing.T) map[string][]string {
	t.Helper()
	script, err := filepath.Abs(cmp.Or(os.Getenv("QUOTIENT_TYPESCRIPT"), "../../clients/typescript/dist/quotient.js"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"threads":    {"python3", "testdata/errors.py", "threads"},
		"tasks":      {"python3", "testdata/errors.py", "tasks"},
		"TypeScript": {"node", "testdata/errors.mjs", script},
	}
}

// command is a program of programs with its arguments, which ends with the test at the latest.
func command(t *testing.T, program []string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // no call of it waits so long, but for those that retry in vain
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], args...)...)
	c.Env = ofClients()
	c.Stderr = os.Stderr
	return c
}

// recipe returns the commands by which the pages make certificates: the authority and issue as run.md has them, and the
// lines of quotad.md that call issue.
func recipe(t *testing.T) string {
	t.Helper()
	page := func(name string) string {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, authority, _ := strings.Cut(page("run.md"), "### Certificates\n")
	authority, _, _ = strings.Cut(authority, "    for member")
	_, authority, found := strings.Cut(authority, "    openssl")
	if !found {
		t.Fatal("run.md has no recipe for certificates")
	}
	all := []string{"set -eu", "openssl" + authority}
	for line := range strings.Lines(page("quotad.md")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "issue ") {
			all = append(all, line)
		}
	}
	if len(all) != 4 {
		t.Fatalf("quotad.md issues %q, want a certificate for quotad and one for a client", all[2:])
	}
	return strings.Join(all, "\n")
}

// By the recipe of the pages programs have permits over TLS. With a wrong certificate they are told at once what to
// change: to wait heals nothing.
func TestCertificates(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for in, more := range map[string]string{dir: "issue unnamed subjectAltName=DNS:quotad.example", other: ""} {
		c := exec.Command("bash", "-c", recipe(t)+"\n"+more)
		c.Dir = in
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name+".pem") }
	foreign := func(name string) string { return filepath.Join(other, name+".pem") }
	_, quotad, socket, _ := setUp(t, map[string]quota.Policy{"p": {Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}})
	addresses, err := embedded.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"quotad", "unnamed"} {
		quotad("--socket", fmt.Sprint(socket, i), "--name", name, "--listen", addresses[i], "--tls-cert", file(name), "--tls-key", file(name+"-key"), "--tls-client-ca", file("ca"))
		await.Until(t, "quotad listens", func() bool {
			c, err := net.Dial("tcp", addresses[i])
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	_, port, _ := net.SplitHostPort(addresses[0])
	authority := "Refused: the certificate of quotad at " + addresses[0] + " is not valid here ("
	client := "Refused: quotad at " + addresses[0] + " takes no connection without a certificate that its --tls-client-ca has issued ("
	const old = "an older TLS"
	for kind, program := range programs(t) {
		for _, c := range []struct {
			name, address string
			files         []string
			want          string
		}{
			{"as the pages say", addresses[0], []string{file("ca"), file("client"), file("client-key")}, "1 permit"},
			{old, addresses[0], []string{file("ca"), file("client"), file("client-key")}, "Refused: quotad at " + addresses[0] + " speaks TLS 1.3 only ("},
			{"no certificate", addresses[0], []string{file("ca")}, client},
			{"one of another authority", addresses[0], []string{file("ca"), foreign("client"), foreign("client-key")}, client},
			{"another authority", addresses[0], []string{foreign("ca"), file("client"), file("client-key")}, authority},
			{"a certificate without the address", addresses[1], []string{file("ca"), file("client"), file("client-key")}, "Refused: the certificate of quotad at " + addresses[1] + " does not name 127.0.0.1: issue its --tls-cert with subjectAltName=IP:127.0.0.1, or "},
			{"a name", "localhost:" + port, []string{file("ca"), file("client"), file("client-key")}, "Refused: the certificate of quotad at localhost:" + port + " does not name localhost: issue its --tls-cert with subjectAltName=DNS:localhost, or "},
			{"a path", socket, []string{file("ca")}, "Refused: the address is " + socket + ": with tls it is host:port"},
			{"no port", "127.0.0.1", []string{file("ca")}, "Refused: the address is 127.0.0.1: with tls it is host:port"},
			{"no TLS", addresses[0], nil, "Refused: the address is " + addresses[0] + ": without tls it is the path of a socket"},
			{"a URL", "http://" + addresses[0], nil, "Refused: the address is http://" + addresses[0] + ": without tls it is the path of a socket"},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				cmd := command(t, program, append([]string{c.address}, c.files...)...)
				if c.name == old {
					cmd.Env = append(cmd.Env, "MAX_TLS=TLSv1_2", "NODE_OPTIONS=--tls-max-v1.2")
				}
				if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), c.want) || strings.Count(string(out), "\n") != 1 {
					t.Errorf("%v, %s, want %s", err, out, c.want)
				}
			})
		}
	}
}

// One rule says which error an answer is, whatever was called: to settle with a quotad that has ended is Unavailable, as
// to acquire is. An argument that is none is Refused, by the words of the caller's language. What was not settled can be
// settled again, and what was, or may have been, cannot.
func TestErrorsHaveOneRule(t *testing.T) {
	for kind, program := range programs(t) {
		t.Run(kind, func(t *testing.T) {
			var settled atomic.Int64
			server, socket := served(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				switch {
				case strings.Contains(string(body), `"5"`), strings.Contains(string(body), `"wants"`):
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, `{"detail":"an argument is wrong"}`)
				case r.URL.Path == "/v1/acquire":
					_, _ = io.WriteString(w, `{"id":"i","permits":1,"until":"2000-01-01T00:00:00Z","expires_in":3600}`)
				default:
					w.WriteHeader([]int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusUnprocessableEntity}[min(2, (settled.Add(1)-1)/3)])
					_, _ = io.WriteString(w, `{"detail":"no such ID, or no time, or too much","retry_after":3}`)
				}
			})
			c := command(t, program, socket)
			in, lines := piped(t, c, os.Stderr)
			says := func(want string) {
				t.Helper()
				if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
					t.Fatalf("%v, %q, want %q", err, line, want)
				}
			}
			none, nan := "None", "nan"
			if kind == "TypeScript" {
				none, nan = "null", "NaN"
			}
			for _, want := range []string{none, "''"} {
				says("Refused: the address is " + want + ": must be the path of quotad's socket, or host:port")
			}
			says(fmt.Sprintf("Refused: the address is %s%s: it has %d bytes, and the path of a socket has at most 105", socket, strings.Repeat("x", 100), len(socket)+100))
			if kind != "TypeScript" {
				says("Refused: tls is a dict: must be an ssl.SSLContext")
			}
			if last := map[string]string{"tasks": none, "TypeScript": nan}[kind]; last != "" {
				for _, want := range []string{"0", "-1", last} {
					says("Refused: connections is " + want + ": must be a whole number from 1")
				}
			}
			for _, want := range []string{none, "'5'", nan} {
				says("Refused: timeout is " + want + ": must be a number of seconds")
			}
			says("Refused: ") // wants that are none
			says("Refused: an argument is wrong")
			const once = "Refused: these permits were settled before"
			for _, want := range [][2]string{{"Refused: no such ID", "Refused: no such ID"}, {"Limited: no such ID", "Limited: no such ID"}, {"Refused: no such ID", once}} {
				says("has permits")
				_, _ = io.WriteString(in, "\n")
				says(want[0])
				says(want[1])
			}
			says("has permits")
			if n := settled.Load(); n != 8 {
				t.Errorf("%d settlements, want one for each batch, and one for each cost that was not settled before", n)
			}
			server.CloseClientConnections()
			server.Close() // with its socket
			_, _ = io.WriteString(in, "\n")
			line, err := lines.ReadString('\n')
			const stands = "the reservation stands as the cost, unless quotad settled it and could not say so\n"
			if !strings.HasPrefix(line, "Unavailable: no quotad at "+socket+" (") || !strings.HasSuffix(line, "): it answered before: see whether it runs, and its log; "+stands) {
				t.Errorf("%v, it says %q of a quotad that has ended", err, line)
			}
			says("Refused: quotad did not answer when these permits were settled: " + stands)
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("%v, it says %q too", err, rest)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Calls that do not wait for permits are answered while others wait for them on all connections that a client has for
// that. One that could wait too, and has no connection, is told which argument gives it one.
func TestCallsThatDoNotWaitPassThoseThatDo(t *testing.T) {
	all := programs(t)
	for kind, c := range map[string]struct {
		program []string
		pass    string
	}{
		"tasks":      {[]string{"python3", "testdata/busy.py"}, "quotient.aio.Client(connections="},
		"TypeScript": {[]string{"node", "testdata/busy.mjs", all["TypeScript"][2]}, "new Client(address, { connections: 128 })"},
	} {
		t.Run(kind, func(t *testing.T) {
			const most = 64
			var waiting atomic.Int64
			wait := make(chan struct{}) // closed when all connections for that are in use
			_, socket := served(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var call struct {
					MaxWait float64 `json:"max_wait"`
				}
				if err := json.Unmarshal(body, &call); err != nil {
					t.Error(err)
				}
				if call.MaxWait > 0 {
					if waiting.Add(1) == most {
						close(wait)
					}
					<-r.Context().Done() // until the program ends
					return
				}
				select {
				case <-wait:
					_, _ = io.WriteString(w, `{"id":"i","permits":1,"until":"2000-01-01T00:00:00Z","expires_in":3600}`)
				case <-r.Context().Done():
				}
			})
			out, err := command(t, c.program, socket).Output()
			want := "200 calls did not wait\nLimited: no connection was free in time: 64 calls are under way, the most of this client that may wait for permits; pass " + c.pass
			if err != nil || !strings.HasPrefix(string(out), want) || strings.Count(string(out), "\n") != 2 || waiting.Load() != most {
				t.Errorf("%v, %d waited, %s, want %s", err, waiting.Load(), out, want)
			}
		})
	}
}

// served has a handler answer at a socket, as a quotad would, until the test ends.
func served(t *testing.T, handler http.HandlerFunc) (server *httptest.Server, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "quotad.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server = httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return server, socket
}
