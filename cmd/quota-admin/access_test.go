package main

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// closedPort returns an address on which nobody can listen. It is the client's end of a connection that lasts
// as long as the test, so that nobody else is given the port.
func closedPort(t *testing.T) string {
	t.Helper()
	c, err := net.Dial("tcp", silentPort(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

// silentPort returns an address that accepts connections and says nothing.
func silentPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return l.Addr().String()
}

func TestUnreachable(t *testing.T) {
	closed, silent := closedPort(t), silentPort(t)
	wrongTLS := httptest.NewUnstartedServer(nil)
	wrongTLS.EnableHTTP2 = true // as etcd's
	wrongTLS.StartTLS()
	t.Cleanup(wrongTLS.Close)
	tests := []struct {
		name string
		args string
		want []string
	}{
		{"nobody listens, default timeouts", "--endpoints " + closed, []string{closed + ": connect: connection refused", "--endpoints or QUOTIENT_ENDPOINTS"}},
		{"nobody listens, a short time to connect", "--dial-timeout 100ms --endpoints " + closed, []string{"etcd cannot be reached within 100ms (--dial-timeout)", closed + ": connect: connection refused"}},
		{"nobody answers, default timeouts", "--endpoints " + silent, []string{silent + ": accepts connections, but does not answer"}},
		{"nobody answers the log in", "--user ann --endpoints " + silent, []string{"log in: no answer within 2s (--dial-timeout)", silent}},
		{"one of two", "--endpoints " + closed + "," + silent, []string{closed + ": connect: connection refused", silent + ": accepts"}},
		{"unknown host", "--endpoints nowhere.invalid:2379", []string{"nowhere.invalid:2379: "}},
		{"unknown certificate", "--endpoints " + wrongTLS.URL, []string{"certificate is not trusted (", "--cacert"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, server)
			b.env["QUOTIENT_PASSWORD"] = "secret"
			delete(b.env, "QUOTIENT_DIAL_TIMEOUT")
			delete(b.env, "QUOTIENT_COMMAND_TIMEOUT")
			// Where this process has no processor for a second, also one that would answer in time does not: it is
			// asked again.
			await.Until(t, "an address answers as it should", func() bool {
				_, stderr := b.want(exitUnreachable, append([]string{"set", "a", "5/s"}, strings.Fields(test.args)...)...)
				lacks := slices.IndexFunc(test.want, func(want string) bool { return !strings.Contains(stderr, want) })
				if lacks >= 0 && !strings.Contains(stderr, "no answer to a connection attempt") && !strings.Contains(stderr, "accepts connections, but does not answer") {
					t.Fatalf("stderr lacks %q:\n%s", test.want[lacks], stderr)
				}
				return lacks < 0
			})
		})
	}
}

// Only budget takes a provider's key by --key: elsewhere it is a certificate's, and who gives one alone is told both.
func TestAKeyThatIsNoCertificates(t *testing.T) {
	b := newBench(t, server)
	for _, command := range []string{"top", "explain"} {
		_, stderr := b.want(exitUsage, command, "github", "--key", "installation-1")
		for _, want := range []string{"needs both", "quota-admin budget PROVIDER --key KEY", "quota-admin top PROVIDER --by key"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: no %q in %s", command, want, stderr)
			}
		}
	}
	if _, stderr := b.want(exitUsage, "top", "--key", "missing.pem", "--cert", "missing.pem"); strings.Contains(stderr, "--by key") {
		t.Errorf("a certificate's key is taken for a provider's: %s", stderr)
	}
}

func TestWrongFiles(t *testing.T) {
	b := newBench(t, server)
	b.env["QUOTIENT_ENDPOINTS"] = "127.0.0.1:2379" // http:// and certificates do not go together
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, args := range []string{"--cacert " + missing, "--cert " + missing + " --key " + missing, "--user ann --password-file " + missing} {
		_, stderr := b.want(exitUsage, append([]string{"list"}, strings.Fields(args)...)...)
		flag, _, _ := strings.Cut(args, " ")
		if strings.HasPrefix(args, "--user") {
			flag = "--password-file"
		}
		if want := "quota-admin: " + flag + ": cannot read " + missing + ": no such file or directory\n"; stderr != want {
			t.Errorf("%s: got %q, want %q", args, stderr, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "a", "5/s")
	b.want(exitDone, "get", "a", "--prefix", b.prefix) // both say the same
	b.want(exitNotFound, "get", "a", "--prefix", b.prefix+"other/")
	delete(b.env, "QUOTIENT_PREFIX")
	b.want(exitNotFound, "get", "a")
	b.env["QUOTIENT_COMMAND_TIMEOUT"] = "soon"
	if _, stderr := b.want(exitUsage, "get", "a"); !strings.Contains(stderr, "QUOTIENT_COMMAND_TIMEOUT") {
		t.Errorf("stderr does not name the variable: %s", stderr)
	}
}

// TestAuthentication has an etcd of its own, since users are the same for all
// prefixes.
func TestAuthentication(t *testing.T) {
	cluster, root := etcdtest.New(t, embedded.Options{})
	b := newBench(t, cluster)
	withUsers(t, root, b.prefix)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("reader-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(exitPermission, "list"); !strings.Contains(stderr, "set --user or QUOTIENT_USER") {
		t.Errorf("no user: %s", stderr)
	}
	b.want(exitUsage, "list", "--user", "reader") // no password, no terminal
	b.want(exitDone, "list", "--user", "reader", "--password-file", password)
	b.env["QUOTIENT_USER"], b.env["QUOTIENT_PASSWORD"] = "reader", "wrong"
	if _, stderr := b.want(exitPermission, "list"); !strings.Contains(stderr, "log in: ") || strings.Contains(stderr, "wrong") {
		t.Errorf("wrong password: %s", stderr)
	}
	b.env["QUOTIENT_PASSWORD"] = "reader-secret"
	b.want(exitDone, "list")
	if _, stderr := b.want(exitPermission, "set", "a", "5/s"); !strings.Contains(stderr, "roles of user reader") {
		t.Errorf("a reader that writes: %s", stderr)
	}
	b.env["QUOTIENT_USER"], b.env["QUOTIENT_PASSWORD"] = "root", "root-secret"
	b.want(exitDone, "set", "a", "5/s")
	if stdout, _ := b.want(exitDone, "history", "a"); !strings.Contains(stdout, "root (ann@host)") {
		t.Errorf("the author is not the user that logged in: %s", stdout)
	}
}

// Without a user the certificate names the author, and without both the run does.
func TestAuthorByCertificate(t *testing.T) {
	env := func(name string) string { return map[string]string{envAuthor: "release 42"}[name] }
	cert, key := etcdtest.NewAuthority(t).Issue("ann", "ann")
	for want, flags := range map[string]*etcdflags.Flags{
		"release 42":       {},
		"ann (release 42)": {Cert: cert, Key: key},
		"bob (release 42)": {Cert: cert, Key: key, User: "bob"},
	} {
		if got := (&app{env: env, etcd: flags}).author(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// withUsers turns authentication on, with root and a user that may read only.
func withUsers(t *testing.T, client *clientv3.Client, prefix string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.RoleAdd(ctx, "read")
	must(err)
	_, err = client.RoleGrantPermission(ctx, "read", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	must(err)
	for user, role := range map[string]string{"root": "root", "reader": "read"} {
		_, err = client.UserAdd(ctx, user, user+"-secret")
		must(err)
		_, err = client.UserGrantRole(ctx, user, role)
		must(err)
	}
	_, err = client.AuthEnable(ctx)
	must(err)
}
