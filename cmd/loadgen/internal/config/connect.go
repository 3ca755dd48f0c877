package config

import (
	"context"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// Client returns a client of the etcd of the flags, or of the embedded one. The
// caller closes it.
func (c *Config) Client(ctx context.Context, embedded []string) (*clientv3.Client, error) {
	if c.Etcd != nil {
		return c.Etcd.Client(ctx)
	}
	f := etcdflags.Flags{Endpoints: embedded, Prefix: etcdflags.DefaultPrefix, DialTimeout: etcdflags.DefaultDialTimeout, CommandTimeout: etcdflags.DefaultCommandTimeout,
		Stderr: os.Stderr, Env: func(string) string { return "" }}
	return f.Client(ctx)
}

// Prefix is that of all keys.
func (c *Config) Prefix() string {
	if c.Etcd != nil {
		return c.Etcd.Prefix
	}
	return etcdflags.DefaultPrefix
}
