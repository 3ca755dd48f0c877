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

	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// Timeout bounds Endpoints, which is called after a request already failed.
const Timeout = time.Second

// Found is what came of a question to an endpoint.
type Found struct {
	Endpoint string
	Says     string
	Do       string // what helps; empty if nothing is wrong
	Answers  bool   // a member of etcd answers there
	Leader   bool   // and it does not say that it knows no leader
}

// String is a line for all of it.
func (f Found) String() string {
	if f.Do == "" {
		return f.Endpoint + ": " + f.Says
	}
	return f.Endpoint + ": " + f.Says + ": " + f.Do
}

// Endpoints connects to each of the client's endpoints, with the client's own TLS
// configuration, and returns what came of it, in the order of the endpoints.
// It takes at most Timeout. A member that asks for a user answers. An endpoint that does not answer in time may
// have answered the request that failed: cause, if not nil, then says why.
func Endpoints(ctx context.Context, client *clientv3.Client, cause error) []Found {
	return within(ctx, client, cause, Timeout)
}

// Lines writes each as a line.
func Lines(all []Found) (lines []string) {
	for _, f := range all {
		lines = append(lines, f.String())
	}
	return lines
}

func within(ctx context.Context, client *clientv3.Client, cause error, timeout time.Duration) []Found {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	endpoints := client.Endpoints()
	found := make([]Found, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() {
			found[i] = probe(ctx, client, endpoint, cause)
			found[i].Endpoint = endpoint
		})
	}
	all.Wait()
	return found
}

// probe asks one member for its status. Unlike the client's own method it does
// not retry, so it sees the transport's error. A member without a leader answers.
func probe(ctx context.Context, client *clientv3.Client, endpoint string, cause error) Found {
	if strings.Contains(endpoint, ",") {
		return Found{Says: "is one address", Do: "split it at the commas"}
	}
	conn, err := client.Dial(endpoint)
	if err != nil {
		return Found{Says: err.Error(), Do: "correct the address"}
	}
	defer conn.Close()
	r, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	switch {
	case err == nil && r.Leader == 0, err != nil && strings.Contains(err.Error(), "no leader"):
		return Found{Says: "answers, but knows no leader", Do: "more than half of the members must run, and reach each other", Answers: true}
	case err == nil, errors.Is(etcdcall.Kind(err), etcdcall.ErrPermission): // which tells nothing of a leader
		return Found{Says: "answers now", Answers: true, Leader: true}
	case status.Code(err) == codes.Unavailable:
		return transport(status.Convert(err).Message(), endpoint)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && cause != nil && strings.Contains(cause.Error(), connecting):
		f := transport(cause.Error(), endpoint)
		f.Says = "does not answer now; before: " + f.Says
		return f
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return silent(endpoint)
	}
	return Found{Says: "answers that it cannot tell its status: " + status.Convert(err).Message(), Do: "if it is no etcd, correct the address, otherwise see its log"}
}

// silent tells a member that does not answer from a host that does not.
func silent(endpoint string) Found {
	_, address, _ := strings.Cut(endpoint, "://")
	address = cmp.Or(address, endpoint)
	if conn, err := net.DialTimeout("tcp", address, Timeout/4); err == nil {
		_ = conn.Close()
		return Found{Says: "accepts connections, but does not answer", Do: mute}
	}
	return Found{Says: "no answer to a connection attempt", Do: network}
}

// mute is what helps where a member does not answer.
const mute = "it is frozen (kill -CONT continues it), overloaded (see its log, disk and CPU), starting while too few others run, without its data (its log says cluster ID mismatch: replace it by etcdctl member remove and member add), or no etcd: restart it if it stays so"

// network is what helps where no host answers.
const network = "see whether its host is up, and the network and the firewalls on the way"

// connecting begins gRPC's text for a connection that failed.
const connecting = "connection error: desc = "

// transport shortens gRPC's text for a connection that failed, and finds the remedy.
// An endpoint without a scheme may be with TLS or without.
func transport(text, endpoint string) Found {
	for _, prefix := range []string{"last connection error: ", connecting, "transport: "} {
		if _, after, ok := strings.Cut(text, prefix); ok {
			text = strings.Trim(after, `"`)
		}
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "Error while dialing: "), "error reading server preface: remote error: ")
	handshake, failed := strings.CutPrefix(text, "authentication handshake failed: ")
	has := func(part string) bool { return strings.Contains(text, part) }
	preface := has("server preface") // nothing came of what gRPC sends first
	closed := has("broken pipe") || has("reset by peer")
	stalled := has("use of closed network connection") || has("i/o timeout") || has("deadline exceeded") // this side has given it up
	switch {
	case stalled && (failed || preface || has("client preface")):
		return Found{Says: "accepts connections, but does not answer in time", Do: mute}
	case has("unknown authority"):
		return Found{Says: "its certificate is not trusted (" + handshake + ")", Do: "name etcd's CA (--cacert, coordinator.ClientTLS)"}
	case has("has expired or is not yet valid"):
		return Found{Says: "its certificate has expired, or is not valid yet (" + handshake + ")", Do: "renew etcd's certificate, or correct this host's clock"}
	case has("certificate required"), has("bad certificate"), has("unknown certificate"):
		return Found{Says: "it refuses the client certificate, or wants one (" + handshake + ")", Do: "give it one (--cert and --key, coordinator.ClientTLS)"}
	case has("tls: expired certificate"), has("tls: revoked certificate"):
		return Found{Says: "it refuses the client certificate (" + handshake + ")", Do: "give it one that is valid (--cert and --key, coordinator.ClientTLS), or correct its clock"}
	case failed && (handshake == "EOF" || has("first record does not look like a TLS handshake")):
		return Found{Says: "accepts connections, but speaks no TLS (" + handshake + ")", Do: "write http:// or leave the certificates out"}
	case closed && !strings.HasPrefix(endpoint, "http://"), preface && strings.HasPrefix(endpoint, "https://"):
		return Found{Says: "accepts connections and closes them at once (" + text + ")", Do: "it may want a client certificate, or another one than it is given (--cert and --key, coordinator.ClientTLS)"}
	case closed, preface:
		return Found{
			Says: "accepts connections, but speaks no gRPC in the clear",
			Do:   "if it wants TLS, write https:// or give --cacert, and if it is not etcd's port for clients (2379), correct the address",
		}
	case failed, has("tls: "):
		return Found{Says: "TLS fails: " + handshake, Do: "see the certificates of both sides"}
	case has("connection refused"):
		return Found{Says: text, Do: "start it, or correct the address"}
	case has("missing port in address"):
		return Found{Says: "lacks a host or a port", Do: "write it like 127.0.0.1:2379"} // as quota-admin says of --endpoints
	case has("too many colons in address"): // the scheme is none that is known, or brackets lack
		return Found{Says: "is no address of etcd", Do: "write it like http://127.0.0.1:2379, or with https, unix or unixs"}
	case has("no such host"):
		return Found{Says: text, Do: "correct the name, or DNS"}
	}
	return Found{Says: text, Do: network}
}
