//go:build e2e

package readme

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

// indented returns the indented block of the documents that has a text.
func indented(t *testing.T, has string) string {
	t.Helper()
	pages, err := markdown.Pages(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(page.Text, -1) {
			if strings.Contains(block, has) {
				return block
			}
		}
	}
	t.Fatalf("no document has a block with %q", has)
	return ""
}

// The certificates of the documents serve each member, the members among themselves, and
// clients by their names.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := exec.Command("bash", "-euo", "pipefail", "-c", indented(t, "issue() {"))
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	load := func(name string) *x509.Certificate {
		text, err := os.ReadFile(filepath.Join(dir, name+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	roots := x509.NewCertPool()
	roots.AddCert(load("ca"))
	for _, c := range []struct {
		name, host string
		usage      x509.ExtKeyUsage
	}{
		{"etcd-1", "etcd-1", x509.ExtKeyUsageServerAuth},
		{"etcd-2", "etcd-2", x509.ExtKeyUsageServerAuth},
		{"etcd-3", "etcd-3", x509.ExtKeyUsageServerAuth},
		{"etcd-peer", "etcd-1", x509.ExtKeyUsageServerAuth},
		{"etcd-peer", "etcd-2", x509.ExtKeyUsageClientAuth},
		{"etcd-peer", "etcd-3", x509.ExtKeyUsageServerAuth},
		{"root", "", x509.ExtKeyUsageClientAuth},
		{"ann", "", x509.ExtKeyUsageClientAuth},
		{"charge", "", x509.ExtKeyUsageClientAuth},
	} {
		cert := load(c.name)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage}}); err != nil || cert.Subject.CommonName != c.name {
			t.Errorf("%s of %s, at host %q: %v", c.name, cert.Subject, c.host, err)
		}
	}
}
