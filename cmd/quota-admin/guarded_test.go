package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// guarded is an etcd with authentication, whose users have the roles that the
// tool created.
type guarded struct {
	*bench
	cluster *embedded.Cluster
}

const secret = "a-secret"

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	cluster, _ := etcdtest.New(t, embedded.Options{})
	g := &guarded{newBench(t, cluster), cluster}
	g.env["QUOTIENT_NEW_PASSWORD"] = secret
	g.env["QUOTIENT_DIAL_TIMEOUT"], g.env["QUOTIENT_COMMAND_TIMEOUT"] = "1m", "1m" // busy machines
	for user, role := range map[string]string{
		"charge": "consumer payments/charge", "refund": "consumer payments/refund",
		"ann": "operator", "bob": "operator payments/charge", "carol": "reader", "dave": "reader payments/charge",
	} {
		g.want(exitDone, append(append([]string{"roles"}, strings.Fields(role)...), "--to", user)...)
	}
	g.want(exitDone, "set", "payments/charge", "100/s", "--settle", "1s")
	g.want(exitDone, "set", "payments/refund", "100/s", "--settle", "1s")
	g.want(exitDone, "roles", "enable")
	return g
}

// as returns a client that logs in.
func (g *guarded) as(user string) *clientv3.Client {
	g.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: g.cluster.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop(), Username: user, Password: secret,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// tool runs the tool as a user.
func (g *guarded) tool(user string, code int, args ...string) (stdout, stderr string) {
	g.t.Helper()
	g.env["QUOTIENT_USER"], g.env["QUOTIENT_PASSWORD"] = user, secret
	defer delete(g.env, "QUOTIENT_USER")
	return g.want(code, args...)
}

// denied reports whether etcd refused. A watch says so in words only.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || status.Code(err) == codes.PermissionDenied ||
		err != nil && strings.HasSuffix(err.Error(), "etcdserver: permission denied")
}
