package diagnose

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// TestEndpoints: each way in which a client and an etcd can miss each other is
// told apart.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "server")
	secure, err := embedded.Start(embedded.Options{TLS: &embedded.TLS{Cert: cert, Key: key, CA: authority.File}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secure.Close() })
	plain, _ := etcdtest.New(t, embedded.Options{})
	pair, err := certs.Load(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	trusting := &tls.Config{InsecureSkipVerify: true}
	known := trusting.Clone()
	known.GetClientCertificate = pair.Get
	old, err := certs.Load(authority.IssueUntil("old", "client", time.Now().Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	expired := trusting.Clone()
	expired.GetClientCertificate = old.Get
	host := func(c *embedded.Cluster) string { return strings.SplitN(c.Endpoints()[0], "://", 2)[1] }
	for _, c := range []struct {
		name, endpoint string
		tls            *tls.Config
		want           string
		mute           bool
		cause          error
	}{
		{"well", plain.Endpoints()[0], nil, "answers now", false, nil},
		{"well with TLS", "https://" + host(secure), known, "answers now", false, nil},
		{"no CA", "https://" + host(secure), &tls.Config{}, "not trusted", false, nil},
		{"no client certificate", "https://" + host(secure), trusting, "--cert and --key", false, nil},
		{"a client certificate that has expired", "https://" + host(secure), expired, "client certificate", false, nil}, // the words depend on which side is faster
		{"no TLS to a port that wants it", "http://" + host(secure), nil, "wants TLS", false, nil},
		{"TLS to a port without", "https://" + host(plain), known, "speaks no TLS", false, nil},
		{"no port", "127.0.0.1", nil, "lacks a host or a port: write it like 127.0.0.1:2379", false, nil},
		{"a mistyped scheme", "htp://127.0.0.1:2379", nil, "is no address of etcd: write it like http://127.0.0.1:2379, or with https, unix or unixs", false, nil},
		{"an IPv6 address without brackets", "::1:2379", nil, "is no address of etcd: write it like http://127.0.0.1:2379", false, nil},
		{"nobody listens", "http://127.0.0.1:1", nil, "connection refused", false, nil},
		{"accepts and says nothing", "http://" + mute.Addr().String(), nil, "overloaded", true, nil},
		{"a member without its data, in a restored cluster", "http://" + mute.Addr().String(), nil, "cluster ID mismatch: replace it", true, nil},
		{"two in one", "http://127.0.0.1:1,http://127.0.0.1:2", nil, "is one address: split it at the commas", false, nil},
		{"another cause", "http://" + mute.Addr().String(), nil, "overloaded", true, context.DeadlineExceeded},
		{"answered before", "https://" + mute.Addr().String(), trusting, "--cert and --key", true,
			status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: certificate required"`)},
	} {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.endpoint}, TLS: c.tls, Logger: zap.NewNop(), DialTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		timeout := time.Minute
		if c.mute {
			timeout = 100 * time.Millisecond
		}
		lines := Lines(within(t.Context(), client, c.cause, timeout))
		if len(lines) != 1 || !strings.HasPrefix(lines[0], c.endpoint+": ") || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: %q, want %q", c.name, lines, c.want)
		}
		_ = client.Close()
	}
}

// TestWhoseCertificateHasExpired: etcd's own, or the client's, by the words of Go's TLS on this side and on etcd's.
func TestWhoseCertificateHasExpired(t *testing.T) {
	for text, want := range map[string]string{
		"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-12-01T10:00:00Z is after 2026-11-30T10:00:00Z": "its certificate has expired, or is not valid yet (tls: ",
		"error reading server preface: remote error: tls: expired certificate": "it refuses the client certificate (tls: expired certificate): ",
	} {
		for _, endpoint := range []string{"https://127.0.0.1:2379", "127.0.0.1:2379"} {
			if got := transport("connection error: desc = \""+text+"\"", endpoint).String(); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

// The error of a plain connection to a port with TLS depends on which side is faster.
func TestAPortThatWantsTLSMayCloseInManyWays(t *testing.T) {
	for _, text := range []string{
		"connection error: desc = \"error reading server preface: EOF\"",
		"connection error: desc = \"error reading server preface: connection reset by peer\"",
		"connection error: desc = \"transport: failed to write client preface: write tcp 127.0.0.1:1: write: broken pipe\"",
	} {
		if got := transport(text, "http://127.0.0.1:2379").String(); !strings.Contains(got, "wants TLS") {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// A server that ends a TLS connection without a word mostly refuses the client's certificate.
func TestATLSConnectionThatIsClosedWantsACertificate(t *testing.T) {
	for _, how := range []string{"connection reset by peer", "EOF"} {
		if got := transport("connection error: desc = \"error reading server preface: "+how+"\"", "https://127.0.0.1:2379").String(); !strings.Contains(got, "client certificate") {
			t.Error(got)
		}
	}
}

// A connection that this side gave up, as nothing came in time, does not show what listens there.
func TestADialThatStalledTellsNothingOfTLS(t *testing.T) {
	for _, text := range []string{
		"connection error: desc = \"error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2379: use of closed network connection\"",
		"connection error: desc = \"error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2379: i/o timeout\"",
		"connection error: desc = \"error reading server preface: context deadline exceeded\"",
		"connection error: desc = \"transport: failed to write client preface: write tcp 127.0.0.1:1: use of closed network connection\"",
		"connection error: desc = \"transport: authentication handshake failed: context deadline exceeded\"",
	} {
		for _, endpoint := range []string{"http://127.0.0.1:2379", "https://127.0.0.1:2379", "127.0.0.1:2379"} {
			if got := transport(text, endpoint).String(); strings.Contains(got, "TLS") || !strings.Contains(got, "does not answer in time") || !strings.Contains(got, "overloaded") {
				t.Errorf("%s: %s", text, got)
			}
		}
	}
}
