// Package certs makes TLS configurations of files. A certificate may be rotated on disk:
// every new connection presents what its files hold then.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync"
	"time"
)

// Pair is a certificate and its key, each in a file. It is safe for concurrent use.
type Pair struct {
	cert, key string

	mu   sync.Mutex
	last *tls.Certificate // newest that could be read
}

// Load reads the files and returns the pair, or why that is impossible.
func Load(cert, key string) (*Pair, error) {
	p := &Pair{cert: cert, key: key}
	loaded, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	p.last = &loaded
	return p, nil
}

// Client returns the configuration of a client. It checks servers against the
// authorities in the file ca, "" for the system's. It presents the certificate, "" for
// none.
func Client(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := Load(cert, key)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = pair.Get
	}
	return c, nil
}

// Expires returns the instant at which the first certificate in a file is no longer valid:
// the one that is presented.
func Expires(file string) (time.Time, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return time.Time{}, fmt.Errorf("%s holds no PEM certificate", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	return c.NotAfter, nil
}

// Get returns what the files hold now, and the pair before it while they cannot
// be read or do not belong together: they are replaced one after the other. It
// suits tls.Config.GetClientCertificate. Handshakes are rare and the files small,
// so they are read every time.
func (p *Pair) Get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if loaded, err := tls.LoadX509KeyPair(p.cert, p.key); err == nil {
		p.last = &loaded
	}
	return p.last, nil
}
