package webconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// ann's password is swordfish.
const users = "basic_auth_users: {ann: $2a$04$Vfk2DDTxp7xSj54ugIs0V.xaWkHR7BP92VAdGTNOGXCDQWolCj/bW}\n"

// secure returns a TLS section with a certificate of the authority, and what else it has.
func secure(a *etcdtest.Authority, more string) string {
	cert, key := a.Issue("web", "web")
	return fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s%s}\n", cert, key, more)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Beyond loopback a server needs TLS and a user, or a verified client certificate. The errors
// name what is missing, and the way out.
func TestBeyondLoopbackNeedsTLSAndAUser(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	both := file(t, secure(a, "")+users)
	for _, c := range []struct {
		address, file string
		want          string // "": it may listen
	}{
		{"127.0.0.1:1", "", ""}, {"localhost:1", "", ""}, {"[::1]:1", "", ""},
		{"127.0.0.1:1", file(t, users), ""}, {"127.0.0.1:1", both, ""},
		{"192.0.2.1:1", both, ""}, {":1", both, ""},
		{"192.0.2.1:1", file(t, secure(a, ", client_ca_file: "+a.File+", client_auth_type: RequireAndVerifyClientCert")), ""},
		{"192.0.2.1:1", "", "needs TLS (tls_server_config) and users (basic_auth_users): listen on 127.0.0.1, or write both into the file of --web.config.file"},
		{":1", "", "--listen :1 can be reached from other hosts"}, {"0.0.0.0:1", "", "can be reached"}, {"[::]:1", "", "can be reached"},
		{"192.0.2.1:1", file(t, ""), "needs TLS"},
		{"192.0.2.1:1", file(t, users), "passwords could be read on the way"},
		{"192.0.2.1:1", file(t, secure(a, "")), "so it needs users"},
		{"192.0.2.1:1", file(t, secure(a, ", client_ca_file: "+a.File+", client_auth_type: RequireAnyClientCert")), "so it needs users"},
		{"192.0.2.1:1", file(t, secure(a, ", client_auth_type: RequireAndVerifyClientCert")), "any public authority could issue a client's certificate: add client_ca_file to "},
		{"nowhere", "", "write HOST:PORT"},
		{"127.0.0.1:1", "/none/such", "--web.config.file /none/such: no such file"},
		{"127.0.0.1:1", file(t, "tls: {}"), "field tls not found"},
		{"127.0.0.1:1", file(t, "basic_auth_users: {ann: swordfish}"), "web.yaml: basic_auth_users: the password of ann is no hash: write what this prints: htpasswd -nBC 10 ann"},
		{"127.0.0.1:1", file(t, "tls_server_config: {cert_file: none.pem, key_file: none.pem}"), "none.pem"},
	} {
		err := Check("--listen", c.address, c.file)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.address, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "swordfish") {
			t.Errorf("the error has a password: %v", err)
		}
	}
}

// What is served needs the user and the certificate of the file.
func TestServedByTheFile(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, config, served := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "in") })}, file(t, secure(a, "")+users), make(chan error, 1)
	go func() { served <- Serve(l, server, config) }()
	text, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for user, want := range map[string]int{"": 401, "ann:wrong": 401, "bob:swordfish": 401, "ann:swordfish": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if name, password, ok := strings.Cut(user, ":"); ok {
			r.SetBasicAuth(name, password)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%q: %d, want %d", user, answer.StatusCode, want)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v", err)
	}
	if !Secure(config) || Secure("") {
		t.Error("Secure")
	}
}

// The certificate's file is known, also where its name is relative to the configuration's folder.
func TestCertificate(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	cert, _ := a.Issue("web", "web")
	beside := filepath.Join(filepath.Dir(cert), "web.yaml")
	if err := os.WriteFile(beside, []byte("tls_server_config: {cert_file: web.pem, key_file: web-key.pem}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{"": "", file(t, users): "", file(t, secure(a, "")): cert, beside: cert} {
		if got := Certificate(config); got != want {
			t.Errorf("%q: %q, want %q", config, got, want)
		}
	}
}
