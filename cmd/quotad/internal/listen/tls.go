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

// TCP are the files of a listener with TLS, and the flags that name them.
type TCP struct {
	Cert, Key, ClientCA string
	of, prefix          string // the flag of the address, and what begins those of the files
}

// Register adds the flags of the files. of is the flag of the address, and need says when
// the files are needed.
func (t *TCP) Register(set *pflag.FlagSet, of, prefix, need, clients string) {
	t.of, t.prefix = of, prefix
	set.StringVar(&t.Cert, prefix+"tls-cert", "", "certificate `file` of --"+of+" host:port; "+need)
	set.StringVar(&t.Key, prefix+"tls-key", "", "key `file` of --"+prefix+"tls-cert")
	set.StringVar(&t.ClientCA, prefix+"tls-client-ca", "", "`file` of the authorities that sign the certificates of "+clients)
}

// Check returns what is wrong with the files, or with an address host:port; "" for none.
// All files are given or none, and none for loopback only.
func (t *TCP) Check(address string) error {
	all := fmt.Sprintf("--%stls-cert, --%[1]stls-key and --%[1]stls-client-ca", t.prefix)
	secure := t.Cert+t.Key+t.ClientCA != ""
	switch {
	case secure && address == "":
		return fmt.Errorf("%s are for --%s host:port", all, t.of)
	case secure && (t.Cert == "" || t.Key == "" || t.ClientCA == ""):
		return errors.New(all + ": all or none")
	case address == "":
		return nil
	}
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s %q: must be host:port", t.of, address)
	}
	if ip := net.ParseIP(name); !secure && name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--%s %s: other hosts may connect by TLS only; add %s, or listen on loopback", t.of, address, all)
	}
	return nil
}

// Secure reports whether there are files.
func (t *TCP) Secure() bool { return t.Cert != "" }

// Listen listens at an address that Check admits. With files clients speak the protocol by
// TLS, and show a certificate that an authority has signed.
func (t *TCP) Listen(address, protocol string, bound Bound) (net.Listener, error) {
	var config *tls.Config
	if t.Secure() {
		c, err := certs.Client(t.ClientCA, t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		config = &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{protocol},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.GetClientCertificate(nil) },
			ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: c.RootCAs,
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if l = bound(l); config != nil {
		l = tls.NewListener(l, config)
	}
	return l, nil
}
