package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/quotient-limiter/quotient/internal/testkit/golden"
)

// programVariable makes the test program be quotad.
const programVariable = "QUOTIENT_QUOTAD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(programVariable); ok {
		main()
	}
	os.Exit(m.Run())
}

func noEnv(string) string { return "" }

func TestHelp(t *testing.T) {
	var out, err bytes.Buffer
	if code := quotad(t.Context(), []string{"--help"}, noEnv, &out, &err, nil); code != exitDone || err.Len() > 0 {
		t.Errorf("code %d, %s", code, &err)
	}
	golden.Check(t, "help.golden", out.String())
}

// What a wrong command line is told.
func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"--sockets x", "unknown flag: --sockets; did you mean --socket?; see quotad --help", exitUsage},
		{"serve", `argument "serve" is not a flag; see quotad --help`, exitUsage},
		{"--socket=", "--socket is empty: give its path, or an address by --listen", exitUsage},
		{"--socket= --probe readyz", "--probe readyz: it asks at sockets only, and --socket is empty: give its path, or ask for /readyz at the address of --listen, with a program's certificate", exitUsage},
		{"--listen 127.0.0.1:80 --probe readyz --socket /nowhere/quotad.sock", "--probe asks at --socket /nowhere/quotad.sock only, where no quotad answers: ", exitFailed},
		{"--listen 0.0.0.0:80", "--listen 0.0.0.0:80: must be an address of loopback, such as 127.0.0.1:8787; other hosts run their own quotad", exitUsage},
		{"--listen 127.0.0.1:80 --tls-cert c --tls-key k", "--tls-cert, --tls-key and --tls-client-ca: all or none", exitUsage},
		{"--tls-cert c", "--tls-cert, --tls-key and --tls-client-ca: all or none", exitUsage},
		{"--listen 127.0.0.1:80", "--listen 127.0.0.1:80: needs --tls-cert, --tls-key and --tls-client-ca; the Unix socket needs none", exitUsage},
		{"--metrics 10.0.0.1:9464", "--metrics 10.0.0.1:9464 can be reached from other hosts, so it needs TLS (tls_server_config) and users (basic_auth_users): listen on 127.0.0.1, or write both into the file of --web.config.file", exitUsage},
		{"--metrics 10.0.0.1:9464 --tls-cert c --tls-key k --tls-client-ca a", "--metrics 10.0.0.1:9464 can be reached from other hosts", exitUsage},
		{"--metrics 9464", `--metrics "9464": write HOST:PORT, as in 127.0.0.1:8080`, exitUsage},
		{"--metrics 127.0.0.1:9464 --web.config.file /none", "--web.config.file /none: no such file", exitUsage},
		{"--web.config.file web.yaml", "--web.config.file web.yaml: it is of --metrics: give that too", exitUsage},
		{"--provider a//b", `--provider: provider "a//b" has an empty part; write a path like "payments/charge"`, exitUsage},
		{"--max-providers 0", "--max-providers 0: must be from 1 to 10000", exitUsage},
		{"--provider a,b --max-providers 1", "--provider: 2 providers are more than --max-providers 1", exitUsage},
		{"--idle 1m", "--idle 1m0s: must be at least 2m0s", exitUsage},
		{"--grace 0s", "--grace 0s: must be positive and at most 1h0m0s", exitUsage},
		{"--max-connections 1", "--max-connections 1: must be from 2 to 100000", exitUsage},
		{"--client-connections 0", "--client-connections 0: must be from 1 to --max-connections, 4096", exitUsage},
		{"--endpoints localhost", `--endpoints: "localhost" lacks a host or a port; write it like 127.0.0.1:2379`, exitUsage},
		{"--state-dir /var/lib/quotad", `--state-dir "/var/lib/quotad": it is gone: leave it out; to restart without a gap, start the new quotad beside the old one`, exitUsage},
		{"--ntp :", "coordinator: ", exitUsage},
		{"--socket /nowhere/quotad.sock", "--socket: open /nowhere/quotad.sock.lock: no such file or directory; the directory must exist and be writable; --socket= serves none", exitFailed},
	} {
		var out, err bytes.Buffer
		code := quotad(t.Context(), strings.Fields(test.args), noEnv, &out, &err, nil)
		lines := strings.Split(strings.TrimSpace(err.String()), "\n")
		if last := lines[len(lines)-1]; code != test.code || !strings.HasPrefix(last, "quotad: "+test.want) {
			t.Errorf("%s: code %d, %s", test.args, code, &err)
		}
	}
}

// A shell is told the values of flags.
func TestCompletion(t *testing.T) {
	var out, err bytes.Buffer
	if code := quotad(t.Context(), []string{"__complete", "--probe", ""}, noEnv, &out, &err, nil); code != exitDone || out.String() != "healthz\nreadyz\n:4\n" {
		t.Errorf("code %d, %q, %s", code, &out, &err)
	}
}

// The flags of the systemd unit exist, with those that its comment adds.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", "quotad.service"))
	if err != nil {
		t.Fatal(err)
	}
	const own = "QUOTAD_ARGS="
	added, command := "", ""
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#   "+own); ok {
			added = rest
		}
		if rest, ok := strings.CutPrefix(line, "ExecStart="); ok {
			command = rest
		}
	}
	words := strings.Fields(strings.ReplaceAll(command, "$QUOTAD_ARGS", added))
	if len(words) == 0 || added == "" {
		t.Fatalf("the unit starts %q, with %q", command, added)
	}
	f, err := parse(words[1:], noEnv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.providers, []string{"payments/charge"}) {
		t.Errorf("the unit has no use for %s%s", own, added)
	}
}

// Releases have quotad for Linux only: elsewhere its socket always fails.
func TestReleasedForLinuxOnly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Builds []struct {
			ID   string
			Goos []string
		}
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		t.Fatal(err)
	}
	for _, b := range release.Builds {
		if linux := slices.Equal(b.Goos, []string{"linux"}); linux != (b.ID == "quotad") {
			t.Errorf("%s is released for %v", b.ID, b.Goos)
		}
	}
}
