// Package certs keeps a client certificate that is rotated on disk: every new
// connection presents what the files hold then.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
)

// Pair is a certificate and its key, each in a file. It is safe for concurrent
// use.
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

// Authorities reads the certificates of authorities from a file.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
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
