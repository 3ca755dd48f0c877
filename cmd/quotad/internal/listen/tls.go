// Package listen opens quotad's listeners.
package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/certs"
)

// Bound limits the connections of a listener.
type Bound func(net.Listener) net.Listener

// TLS are the files by which quotad serves calls at an address host:port.
type TLS struct{ Cert, Key, ClientCA string }

// tlsFlags names all flags of TLS.
const tlsFlags = "--tls-cert, --tls-key and --tls-client-ca"

// Register adds the flags of the files.
func (t *TLS) Register(set *pflag.FlagSet) {
	set.StringVar(&t.Cert, "tls-cert", "", "certificate `file` of --listen and --envoy")
	set.StringVar(&t.Key, "tls-key", "", "key `file` of --tls-cert")
	set.StringVar(&t.ClientCA, "tls-client-ca", "", "`file` of the authorities that sign the certificates of clients")
}

// Check returns what is wrong with the files: all are given or none.
func (t *TLS) Check() error {
	if t.Secure() && (t.Cert == "" || t.Key == "" || t.ClientCA == "") {
		return errors.New(tlsFlags + ": all or none")
	}
	return nil
}

// Secure reports whether there are files.
func (t *TLS) Secure() bool { return t.Cert+t.Key+t.ClientCA != "" }

// Demand returns an error if there are no files to serve a flag's address host:port. instead is the
// way out without them.
func (t *TLS) Demand(flag, address, instead string) error {
	if t.Secure() {
		return nil
	}
	return fmt.Errorf("--%s %s: needs %s; %s", flag, address, tlsFlags, instead)
}

// Listen listens at an address host:port. Clients speak the protocol by TLS, and show a certificate
// that an authority has signed.
func (t *TLS) Listen(address, protocol string, bound Bound) (net.Listener, error) {
	c, err := certs.Client(t.ClientCA, t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(bound(l), &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.GetClientCertificate(nil) },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: c.RootCAs,
	}), nil
}
