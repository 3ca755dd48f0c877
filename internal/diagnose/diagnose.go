// Package diagnose finds out why an etcd does not answer, or cannot be relied on: a
// wrong address, a certificate that is missing or not trusted, a member without a
// leader, an old version.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Timeout bounds Endpoints, which is called after a request already failed.
const Timeout = time.Second

// Endpoints connects to each of the client's endpoints, with the client's own TLS
// configuration, and returns one line for each: the endpoint and what came of it.
// It takes at most Timeout and needs no user. An endpoint that does not answer in time may
// have answered the request that failed: cause, if not nil, then says why.
func Endpoints(ctx context.Context, client *clientv3.Client, cause error) []string {
	return within(ctx, client, cause, Timeout)
}

func within(ctx context.Context, client *clientv3.Client, cause error, timeout time.Duration) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	endpoints := client.Endpoints()
	lines := make([]string, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() { lines[i] = endpoint + ": " + probe(ctx, client, endpoint, cause) })
	}
	all.Wait()
	return lines
}

// probe asks one member for its status. Unlike the client's own method it does
// not retry, so it sees the transport's error. A member without a leader answers.
func probe(ctx context.Context, client *clientv3.Client, endpoint string, cause error) string {
	if strings.Contains(endpoint, ",") {
		return "is one address: split it at the commas"
	}
	conn, err := client.Dial(endpoint)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	r, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	plain := strings.HasPrefix(endpoint, "http://")
	switch {
	case err == nil && r.Leader == 0, err != nil && strings.Contains(err.Error(), "no leader"):
		return "answers, but knows no leader: more than half of the members must run"
	case err == nil:
		return "answers now"
	case status.Code(err) == codes.Unavailable:
		return transport(status.Convert(err).Message(), plain)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && cause != nil && strings.Contains(cause.Error(), connecting):
		return "does not answer now; before: " + transport(cause.Error(), plain)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return silent(endpoint)
	}
	return "answers: " + status.Convert(err).Message()
}

// silent tells a member that does not answer from a host that does not.
func silent(endpoint string) string {
	_, address, _ := strings.Cut(endpoint, "://")
	address = cmp.Or(address, endpoint)
	if conn, err := net.DialTimeout("tcp", address, Timeout/4); err == nil {
		_ = conn.Close()
		return "accepts connections, but does not answer; it may be overloaded or stopped, or no etcd"
	}
	return "no answer to a connection attempt; a firewall may drop it, or the host is down"
}

// connecting begins gRPC's text for a connection that failed.
const connecting = "connection error: desc = "

// transport shortens gRPC's text for a connection that failed, and adds the remedy.
// plain says that it was one without TLS.
func transport(text string, plain bool) string {
	for _, prefix := range []string{"last connection error: ", connecting, "transport: "} {
		if _, after, ok := strings.Cut(text, prefix); ok {
			text = strings.Trim(after, `"`)
		}
	}
	text = strings.TrimPrefix(text, "Error while dialing: ")
	handshake, failed := strings.CutPrefix(text, "authentication handshake failed: ")
	has := func(part string) bool { return strings.Contains(text, part) }
	closed := has("broken pipe") || has("reset by peer")
	switch {
	case has("unknown authority"):
		return "its certificate is not trusted: " + handshake + "; name etcd's CA (--cacert, coordinator.ClientTLS)"
	case has("certificate required"), has("bad certificate"), has("unknown certificate"):
		return "it refuses the client certificate, or wants one: " + handshake + " (--cert and --key, coordinator.ClientTLS)"
	case failed && (handshake == "EOF" || has("first record does not look like a TLS handshake")):
		return "accepts connections, but speaks no TLS: " + handshake + "; write http:// or leave the certificates out"
	case closed && !plain:
		return "accepts connections and closes them at once: " + text + "; it may want a client certificate (--cert and --key, coordinator.ClientTLS)"
	case closed, has("server preface"):
		return "accepts connections, but speaks no gRPC in the clear; it may want TLS (https:// or --cacert)"
	case failed:
		return "TLS fails: " + handshake
	}
	return text
}
