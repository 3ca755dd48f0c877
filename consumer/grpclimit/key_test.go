package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/grpclimit"
	"github.com/quotient-limiter/quotient/quota"
)

// A server takes a call's key from its metadata, and a client from its own context. Each
// account has its own limit, and a refusal says that it is the account's.
func TestCallsHaveKeys(t *testing.T) {
	account := func(md metadata.MD) string { return strings.Join(md.Get("account"), "") }
	ofServer := func(ctx context.Context, method string) string {
		md, _ := metadata.FromIncomingContext(ctx)
		if !strings.HasPrefix(method, "/grpc.testing.TestService/") {
			t.Errorf("method %q", method)
		}
		return account(md)
	}
	ofClient := func(ctx context.Context, _ string) string {
		md, _ := metadata.FromOutgoingContext(ctx)
		return account(md)
	}
	for kind, call := range kinds {
		for _, side := range []string{"client", "server"} {
			t.Run(side+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					policy := quota.Policy{
						Limits: []quota.Limit{{Permits: 100, Window: time.Second}},
						Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, Most: 10},
					}
					limiter, err := consumer.Open(t.Context(), consumer.Fixed(policy), "p", consumer.Options{Logger: quiet})
					if err != nil {
						t.Fatal(err)
					}
					var c *grpclimit.Client
					var s *grpclimit.Server
					if side == "client" {
						c = &grpclimit.Client{Limiter: limiter, Key: ofClient}
					} else {
						s = &grpclimit.Server{Limiter: limiter, Key: ofServer}
					}
					connected(t, c, s, func(t *testing.T, conn *grpc.ClientConn, _ *service) { refuseByKey(t, conn, call, side == "client") })
				})
			})
		}
	}
}

func refuseByKey(t *testing.T, conn *grpc.ClientConn, call func(context.Context, *grpc.ClientConn) error, local bool) {
	for _, step := range []struct {
		account string
		code    codes.Code
		says    string
	}{
		{"a", codes.OK, ""},
		{"b", codes.OK, ""},
		{"a", codes.ResourceExhausted, "key"},
		{"", codes.OK, ""},
		{"", codes.OK, ""},
		{strings.Repeat("x", 257), codes.InvalidArgument, "key"},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "account", step.account)
		err := call(ctx, conn)
		if status.Code(err) != step.code || err != nil && !strings.Contains(status.Convert(err).Message(), step.says) {
			t.Errorf("account %q: %v", step.account, err)
		}
		limited, _ := errors.AsType[consumer.LimitError](err)
		if local && step.code == codes.ResourceExhausted && limited.Key != step.account {
			t.Errorf("%v, key %q", err, limited.Key)
		}
	}
}
