package etcdtest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates for tests of TLS, valid for a day. A failure fails the
// test.
type Authority struct {
	// File holds the authority's own certificate.
	File string

	t    TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority for a test.
func NewAuthority(t TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	a := &Authority{t: t, dir: dir, File: filepath.Join(dir, "ca.pem"), cert: template("test authority")}
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = a.sign(a.File, a.cert)
	return a
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
}

// Issue writes a certificate with the given common name, and its key, and
// returns the files. The same file names are used for the same file.
func (a *Authority) Issue(file, commonName string) (cert, key string) {
	a.t.Helper()
	return a.issue(file, template(commonName))
}

// IssueUntil is Issue for a certificate that expires at an instant, which may be up to an hour ago.
func (a *Authority) IssueUntil(file, commonName string, expires time.Time) (cert, key string) {
	a.t.Helper()
	c := template(commonName)
	c.NotAfter = expires
	return a.issue(file, c)
}

func (a *Authority) issue(file string, c *x509.Certificate) (cert, key string) {
	a.t.Helper()
	cert, key = filepath.Join(a.dir, file+".pem"), filepath.Join(a.dir, file+"-key.pem")
	encoded, err := x509.MarshalPKCS8PrivateKey(a.sign(cert, c))
	a.must(err)
	a.write(key, "PRIVATE KEY", encoded)
	return cert, key
}

// sign writes a certificate with a new key; the authority's own is signed with that.
func (a *Authority) sign(file string, c *x509.Certificate) *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, cmp.Or(a.key, key))
	a.must(err)
	a.write(file, "CERTIFICATE", der)
	return key
}

func (a *Authority) write(file, kind string, der []byte) {
	a.t.Helper()
	a.must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
