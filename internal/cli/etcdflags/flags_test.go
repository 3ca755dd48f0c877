package etcdflags

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// parse registers the flags on a set of its own and parses args, with the
// given environment and without a terminal.
func parse(t *testing.T, args []string, env map[string]string) *Flags {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := Register(set)
	f.Env = func(name string) string { return env[name] }
	f.Stdin = strings.NewReader("")
	f.Stderr = &strings.Builder{}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPrecedence(t *testing.T) {
	env := map[string]string{
		"QUOTIENT_ENDPOINTS":       "a:1,b:2",
		"QUOTIENT_PREFIX":          "/env/",
		"QUOTIENT_DIAL_TIMEOUT":    "7s",
		"QUOTIENT_COMMAND_TIMEOUT": "8s",
	}
	f := parse(t, []string{"--prefix", "/flag/", "--command-timeout=9s"}, env)
	if err := f.Resolve(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Endpoints, " "); got != "a:1 b:2" {
		t.Errorf("endpoints %q: the environment must replace the default", got)
	}
	if f.Prefix != "/flag/" || f.CommandTimeout != 9*time.Second {
		t.Errorf("prefix %q, command timeout %v: a flag must win over the environment", f.Prefix, f.CommandTimeout)
	}
	if f.DialTimeout != 7*time.Second {
		t.Errorf("dial timeout %v: the environment must win over the default", f.DialTimeout)
	}
}

func TestUsageNamesTheVariable(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(set)
	set.VisitAll(func(flag *pflag.Flag) {
		if want := "[env " + envName(flag.Name) + "]"; !strings.Contains(flag.Usage, want) {
			t.Errorf("--%s: usage %q lacks %q", flag.Name, flag.Usage, want)
		}
	})
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, text := file("empty", "\n"), file("text", "hello")
	missing, open := filepath.Join(dir, "missing"), file("open", "secret")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		args   string
		env    map[string]string
		source string
		want   string // part of the problem
	}{
		{"password in an argument", "--user ann:secret", nil, "--user", "holds a colon"},
		{"password in the user's variable", "", map[string]string{"QUOTIENT_USER": "ann:secret"}, "QUOTIENT_USER", "holds a colon"},
		{"no password and no terminal", "--user ann", nil, "--user", "set QUOTIENT_PASSWORD or --password-file"},
		{"password file missing", "--user ann --password-file " + missing, nil, "--password-file", "cannot read " + missing + ": no such file"},
		{"password file empty", "--user ann --password-file " + empty, nil, "--password-file", "is empty"},
		{"password file that all can read", "--user ann --password-file " + open, nil, "--password-file", "can be read or changed by every user"},
		{"password file without a user", "--password-file " + text, nil, "--password-file", "without --user"},
		{"CA file missing", "--cacert " + missing, nil, "--cacert", "cannot read " + missing + ": no such file"},
		{"CA file by variable", "", map[string]string{"QUOTIENT_CACERT": missing}, "QUOTIENT_CACERT", "cannot read " + missing},
		{"CA file is a directory", "--cacert " + dir, nil, "--cacert", "is a directory"},
		{"CA file holds none", "--cacert " + text, nil, "--cacert", "holds no PEM certificate"},
		{"certificate without key", "--cert " + text, nil, "--cert", "without --key"},
		{"key without certificate", "--key " + text, nil, "--key", "without --cert"},
		{"certificate missing", "--cert " + missing + " --key " + text, nil, "--cert", "cannot read " + missing},
		{"key missing", "--cert " + text + " --key " + missing, nil, "--key", "cannot read " + missing},
		{"certificate is none", "--cert " + text + " --key " + text, nil, "--cert", "failed to find any PEM data"},
		{"certificates in the clear", "--endpoints http://a:1 --cacert " + text, nil, "--endpoints", "is without TLS"},
		{"mixed schemes", "--endpoints http://a:1,https://b:2", nil, "--endpoints", "use the same for all"},
		{"no port", "--endpoints localhost", nil, "--endpoints", `"localhost" lacks a host or a port`},
		{"no host", "--endpoints :2379", nil, "--endpoints", "lacks a host or a port"},
		{"port 0", "--endpoints a:0", nil, "--endpoints", "not within 1 to 65535"},
		{"port too large", "--endpoints a:65536", nil, "--endpoints", "not within 1 to 65535"},
		{"a path", "--endpoints http://a:1/v3", nil, "--endpoints", "more than host and port"},
		{"an unknown scheme", "--endpoints ftp://a:1", nil, "--endpoints", `has scheme "ftp"`},
		{"an empty socket", "--endpoints unix://", nil, "--endpoints", "lacks the path"},
		{"empty endpoint in a list", "--endpoints a:1,,b:2", nil, "--endpoints", "is not an address"},
		{"user in an endpoint", "--endpoints http://ann:secret@a:1", nil, "--endpoints", "use --user"},
		{"no endpoints", "--endpoints=", nil, "--endpoints", "is empty"},
		{"prefix without a slash", "--prefix /q", nil, "--prefix", "must begin and end with a slash"},
		{"empty prefix", "--prefix=", nil, "--prefix", "is empty"},
		{"dial timeout 0", "--dial-timeout 0s", nil, "--dial-timeout", "not positive"},
		{"command timeout negative", "--command-timeout=-1s", nil, "--command-timeout", "not positive"},
		{"no duration in the variable", "", map[string]string{"QUOTIENT_DIAL_TIMEOUT": "soon"}, "QUOTIENT_DIAL_TIMEOUT", `"soon"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := parse(t, strings.Fields(test.args), test.env)
			client, err := f.Client(context.Background())
			if err == nil {
				client.Close()
				t.Fatal("accepted")
			}
			var usage *UsageError
			if !errors.As(err, &usage) {
				t.Fatalf("%v is a %T, not a *UsageError", err, err)
			}
			if usage.Source != test.source || !strings.Contains(usage.Problem, test.want) {
				t.Errorf("got %q, want source %s and %q", err, test.source, test.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q shows the password", err)
			}
		})
	}
}

func TestEndpointForms(t *testing.T) {
	for _, text := range []string{"127.0.0.1:2379", "http://a:1", "https://[::1]:1", "unix:///tmp/s", "unixs://s"} {
		if problem := problemOf(text); problem != "" {
			t.Errorf("%s: problem %q", text, problem)
		}
	}
}

func TestPasswordSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("from file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, args string
		env        map[string]string
		want       string
	}{
		{"no user, no password", "", map[string]string{"QUOTIENT_PASSWORD": "x"}, ""},
		{"variable", "--user ann", map[string]string{"QUOTIENT_PASSWORD": "x"}, "x"},
		{"file", "--user ann --password-file " + path, nil, "from file"},
		{"a file by flag wins over the variable", "--user ann --password-file " + path, map[string]string{"QUOTIENT_PASSWORD": "x"}, "from file"},
		{"variable wins over a file by variable", "--user ann", map[string]string{"QUOTIENT_PASSWORD": "x", "QUOTIENT_PASSWORD_FILE": path}, "x"},
		{"file by variable", "", map[string]string{"QUOTIENT_USER": "ann", "QUOTIENT_PASSWORD_FILE": path}, "from file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := parse(t, strings.Fields(test.args), test.env)
			if err := f.Resolve(); err != nil {
				t.Fatal(err)
			}
			got, err := f.password()
			if err != nil || got != test.want {
				t.Errorf("password %q, error %v; want %q", got, err, test.want)
			}
		})
	}
}
