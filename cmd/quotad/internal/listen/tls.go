// Package listen opens quotad's listeners.
package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/certs"
)

// Files are those of a listener with TLS.
type Files struct{ Cert, Key, ClientCA string }

// Register adds the flags of the files, for the listener of a flag such as --envoy.
func (f *Files) Register(set *pflag.FlagSet, of, clients string) {
	set.StringVar(&f.Cert, of+"-tls-cert", "", "certificate `file` of --"+of+" host:port; needed for other hosts than loopback")
	set.StringVar(&f.Key, of+"-tls-key", "", "key `file` of --"+of+"-tls-cert")
	set.StringVar(&f.ClientCA, of+"-tls-client-ca", "", "`file` of the authorities that sign the certificates of "+clients)
}

// Check returns what is wrong with the files, or with the address host:port of a flag. All
// files are given or none, and none for loopback only.
func (f *Files) Check(of, address string) error {
	all := fmt.Sprintf("--%s-tls-cert, --%[1]s-tls-key and --%[1]s-tls-client-ca", of)
	secure := *f != Files{}
	if secure && (f.Cert == "" || f.Key == "" || f.ClientCA == "") {
		return errors.New(all + ": all or none")
	}
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s %q: must be host:port", of, address)
	}
	if ip := net.ParseIP(name); !secure && name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--%s %s: other hosts may connect by TLS only; add %s, or listen on loopback", of, address, all)
	}
	return nil
}

// TLS returns a configuration for clients that show a certificate which an authority in
// ClientCA has signed, and that speak one of the protocols, if any are named.
func (f *Files) TLS(protocols ...string) (*tls.Config, error) {
	pair, err := certs.Load(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", f.ClientCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(nil) },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: authorities,
	}, nil
}
