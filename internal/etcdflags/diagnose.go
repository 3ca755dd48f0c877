package etcdflags

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// diagnoseTimeout bounds Diagnose, which runs when a command has already waited
// its full time in vain.
const diagnoseTimeout = time.Second

// Diagnose connects to every endpoint, without etcd's protocol, and says in one
// line for each what came of it. It is meant for the moment when etcd does not
// answer, to tell a wrong address from a wrong certificate and from an etcd that
// has no leader. It takes a second at most and needs a successful Resolve.
func (f *Flags) Diagnose(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	secure, err := f.tlsConfig()
	if err != nil {
		return []string{err.Error()}
	}
	lines := make([]string, len(f.Endpoints))
	var all sync.WaitGroup
	for i, text := range f.Endpoints {
		all.Go(func() { lines[i] = text + ": " + probe(ctx, text, secure) })
	}
	all.Wait()
	return lines
}

// probe says how far a connection to one endpoint gets.
func probe(ctx context.Context, text string, secure *tls.Config) string {
	e, problem := parseEndpoint(text)
	if problem != "" {
		return problem
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, e.network(), e.host)
	if err != nil {
		return dialProblem(err)
	}
	defer conn.Close()
	if secure == nil {
		return "accepts connections, but does not answer; it may have no leader, or want TLS (https:// or --cacert)"
	}
	c := secure.Clone()
	if host, _, err := net.SplitHostPort(e.host); err == nil {
		c.ServerName = host
	}
	if err := tls.Client(conn, c).HandshakeContext(ctx); err != nil {
		return fmt.Sprintf("accepts connections, but TLS fails: %v", err)
	}
	return "accepts connections and TLS, but does not answer; it may have no leader, or want a client certificate (--cert and --key)"
}

// dialProblem leaves out of the error what the line says already.
func dialProblem(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer to a connection attempt; a firewall may drop it, or the host is down"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "unknown host: " + dns.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}
