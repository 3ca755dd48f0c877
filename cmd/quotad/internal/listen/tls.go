// Package listen opens quotad's listeners.
package listen

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/quotient-limiter/quotient/internal/certs"
)

// Files are those of a listener with TLS.
type Files struct{ Cert, Key, ClientCA string }

// TLS returns a configuration for clients that show a certificate which an authority in
// ClientCA has signed.
func (f Files) TLS() (*tls.Config, error) {
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
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(nil) },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: authorities,
	}, nil
}
