package envoy

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// listening returns the server of flags, with a host that has all providers.
func listening(t *testing.T, f *Flags) *Server {
	t.Helper()
	f.rules, f.Group = write(t, rules), new(string)
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	h, err := host.New(t.Context(), consumer.Fixed(policyOf(t, "100/s")), host.Options{
		Known: func(context.Context, string) error { return nil }, Max: 9, Idle: time.Hour, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := f.Listen(h, log)
	if err != nil {
		t.Fatal(err)
	}
	s := server.(*Server)
	serveUntilEnd(t, s, h.Close)
	return s
}

func ask(t *testing.T, target string, c credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge")})
	return err
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	f := &Flags{address: filepath.Join(t.TempDir(), "envoy.sock")}
	listening(t, f)
	if err := ask(t, "unix:"+f.address, insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
	if i, err := os.Stat(f.address); err != nil || i.Mode().Perm() != fs.FileMode(0o660) {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
}

// A server that never served, because another listener failed, gives its socket back.
func TestShutdownBeforeServe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "envoy.sock")
	l, err := listen.Unix(path, "", slog.New(slog.DiscardHandler), func(l net.Listener) net.Listener { return l })
	if err != nil {
		t.Fatal(err)
	}
	if err := newServer(l, &limits{}).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Envoys leave a server that gives way for the other one at the socket. One that is alone serves on.
func TestEnvoysMoveToTheOther(t *testing.T) {
	t.Parallel()
	f := &Flags{address: filepath.Join(t.TempDir(), "envoy.sock")}
	first := listening(t, f)
	conn, err := grpc.NewClient("unix:"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := func(s *Server) bool {
		t.Helper()
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("route=charge")}); err != nil {
			t.Fatal(err)
		}
		return s.listener.(*listen.Bounded).Occupancy.Open() == 1
	}
	gives := func(want bool) {
		t.Helper()
		if another, err := first.GiveWay(); another != want || err != nil {
			t.Errorf("another %v, %v", another, err)
		}
	}
	gives(false)
	if !answers(first) {
		t.Error("who has no other is not served")
	}
	second := listening(t, f)
	if !answers(first) {
		t.Error("an Envoy has left without need")
	}
	gives(true)
	await.Until(t, "the second answers", func() bool { return answers(second) })
}

func TestClientsShowCertificates(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	s := listening(t, &Flags{address: "127.0.0.1:0", TLS: &listen.TLS{Cert: cert, Key: key, ClientCA: authority.File}})
	for _, c := range []struct {
		cert, key string
		want      codes.Code
	}{{"", "", codes.Unavailable}, {cert, key, codes.OK}} {
		config, err := certs.Client(authority.File, c.cert, c.key)
		if err != nil {
			t.Fatal(err)
		}
		if err := ask(t, s.listener.Addr().String(), credentials.NewTLS(config)); status.Code(err) != c.want {
			t.Errorf("with certificate %q: %v", c.cert, err)
		}
	}
	if err := ask(t, s.listener.Addr().String(), insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
}

// A process that holds connections without a call has no more than its bound.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	f := &Flags{address: filepath.Join(t.TempDir(), "envoy.sock")}
	listening(t, f)
	closed := make(chan struct{}, clientConnections+10)
	for range cap(closed) {
		c, err := net.Dial("unix", f.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err == nil {
			go func() {
				if _, err := io.Copy(io.Discard, c); err != nil || t.Context().Err() == nil {
					closed <- struct{}{}
				}
			}()
		} else {
			closed <- struct{}{}
		}
	}
	if err := ask(t, "unix:"+f.address, insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Fatalf("one more connection: %v", err)
	}
	await.Until(t, "the last connections are refused", func() bool { return len(closed) >= 10 })
}
