package coordinator

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// authority returns a new one, and what a server needs.
func authority(t *testing.T) (*etcdtest.Authority, *embedded.TLS) {
	t.Helper()
	a := etcdtest.NewAuthority(t)
	cert, key := a.Issue("server", "etcd")
	return a, &embedded.TLS{Cert: cert, Key: key, CA: a.File}
}

// TestARotatedCertificateIsShown replaces the files under a running client: the
// next connection must show the new certificate, also while only one of the two
// files is replaced it must show one that works.
func TestARotatedCertificateIsShown(t *testing.T) {
	a, server := authority(t)
	cert, key := a.Issue("client", "before")
	config, err := ClientTLS(a.File, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: config.RootCAs, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	shown := make(chan string)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			name := "none"
			if c, ok := conn.(*tls.Conn); ok && c.HandshakeContext(context.Background()) == nil {
				name = c.ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			_ = conn.Close()
			shown <- name
		}
	}()
	want := func(name string) {
		t.Helper()
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute}, Config: config}
		conn, err := d.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := <-shown; got != name {
			t.Errorf("the server saw %q, want %q", got, name)
		}
	}
	want("before")
	a.Issue("client", "after")
	want("after")
	if err := os.WriteFile(key, []byte("half written"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("after")
}

func TestClientTLSRefusesFiles(t *testing.T) {
	a, _ := authority(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ ca, cert, key, says string }{
		{text, "", "", "holds no PEM certificate"}, {text + "x", "", "", "no such file"},
		{a.File, text, text, "certificate " + text}, {a.File, a.File, "", "certificate " + a.File},
	} {
		if _, err := ClientTLS(test.ca, test.cert, test.key); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestASessionByTLS: an instance lives by a client certificate alone, and who has
// none is not let in.
func TestASessionByTLS(t *testing.T) {
	t.Parallel()
	a, server := authority(t)
	cluster, err := embedded.Start(embedded.Options{TLS: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	connect := func(cert, key string) *clientv3.Client {
		config, err := ClientTLS(a.File, cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), DialTimeout: 5 * time.Second, TLS: config, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	cert, key := a.Issue("client", "worker")
	f := setupOn(t, connect(cert, key))
	f.set("p", "10/s")
	r, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", r.is(proved))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := connect("", "").Get(ctx, "x"); err == nil {
		t.Error("etcd served a client without a certificate")
	}
}
