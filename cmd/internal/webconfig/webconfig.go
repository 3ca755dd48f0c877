// Package webconfig lets a command's HTTP server listen beyond loopback: by TLS and with users, as
// the file of --web.config.file says. The file is that of Prometheus's exporters, read by
// github.com/prometheus/exporter-toolkit/web:
//
//	tls_server_config: {cert_file: web.pem, key_file: web-key.pem}
//	basic_auth_users: {ann: "$2y$10$..."} # by htpasswd -nBC 10 ann
//
// The toolkit reads the file and the certificates again for new connections, so a renewed
// certificate and another user need no restart.
//
// A server calls Register for the flag, Check before it listens, and Serve in place of
// http.Server.Serve:
//
//	webconfig.Register(flags, &file, "of the page")
//	err := webconfig.Check("--listen", address, file)
//	err = webconfig.Serve(listener, server, file)
package webconfig

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v2"
	"golang.org/x/crypto/bcrypt"
)

// Flag is the name of the flag.
const Flag = "web.config.file"

// Register adds the flag to the set. of says whose TLS and users the file has, as "of the page".
func Register(set *pflag.FlagSet, file *string, of string) {
	set.StringVar(file, Flag, "", "`file` of the TLS and the users "+of+", as Prometheus's exporters have it; needed beyond loopback")
}

// Check returns an error if the address, HOST:PORT, is beyond loopback and the file does not ask
// for TLS and for a user, or a client certificate of an authority that it names; or if the file cannot be used. flag is
// the address's, for errors.
func Check(flag, address, file string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s %q: write HOST:PORT, as in 127.0.0.1:8080", flag, address)
	}
	c, err := read(file)
	if err != nil {
		return fmt.Errorf("--%s %s: %w", Flag, file, err)
	}
	if Loopback(address) {
		return nil
	}
	const wayOut = "listen on 127.0.0.1, or write both into the file of --" + Flag
	switch login := len(c.Users) > 0 || c.TLSConfig.ClientAuth == "RequireAndVerifyClientCert"; {
	case !c.TLSConfig.IsEnabled() && !login:
		return fmt.Errorf("%s %s can be reached from other hosts, so it needs TLS (tls_server_config) and users (basic_auth_users): %s", flag, address, wayOut)
	case !c.TLSConfig.IsEnabled():
		return fmt.Errorf("%s %s can be reached from other hosts, and passwords could be read on the way: add TLS (tls_server_config) to %s, or listen on 127.0.0.1", flag, address, file)
	case !login:
		return fmt.Errorf("%s %s can be reached from other hosts, so it needs users: add basic_auth_users, or client_auth_type: RequireAndVerifyClientCert, to %s, or listen on 127.0.0.1", flag, address, file)
	case len(c.Users) == 0 && c.TLSConfig.ClientCAs == "" && c.TLSConfig.ClientCAsText == "":
		return fmt.Errorf("%s %s can be reached from other hosts, and any public authority could issue a client's certificate: add client_ca_file to %s, or basic_auth_users", flag, address, file)
	}
	return nil
}

// Secure reports whether the file, which Check has passed, asks for TLS.
func Secure(file string) bool {
	c, err := read(file)
	return err == nil && c.TLSConfig.IsEnabled()
}

// Certificate returns the name of the certificate's file; empty if the file that Check has passed
// asks for no TLS, or has the certificate in itself.
func Certificate(file string) string {
	c, err := read(file)
	if err != nil {
		return ""
	}
	c.TLSConfig.SetDirectory(filepath.Dir(file))
	return c.TLSConfig.TLSCertPath
}

// Serve serves as the file says, and without a file plain HTTP. It returns what
// http.Server.Serve returns.
func Serve(l net.Listener, server *http.Server, file string) error {
	return web.Serve(l, server, &web.FlagConfig{WebConfigFile: &file}, slog.New(slog.DiscardHandler))
}

// Loopback reports whether the address, HOST:PORT, is reached from this machine only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// read returns what the file says; nothing without one. The toolkit has checked it.
func read(file string) (c web.Config, err error) {
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return c, failed.Err // without the name, which the caller has
	}
	if err != nil {
		return c, err
	}
	failed := web.Validate(file)
	err = yaml.Unmarshal(text, &c)
	for name, hash := range c.Users {
		if _, wrong := bcrypt.Cost([]byte(hash)); wrong != nil {
			return c, fmt.Errorf("basic_auth_users: the password of %s is no hash: write what this prints: htpasswd -nBC 10 %[1]s", name)
		}
	}
	return c, cmp.Or(failed, err)
}
