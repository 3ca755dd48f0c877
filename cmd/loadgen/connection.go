package main

import (
	"context"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// connection is how a worker reaches etcd. It goes through a pipe, so the
// password stands in no argument list and no environment.
type connection struct {
	Endpoints      []string      `json:"endpoints"`
	CACert         string        `json:"cacert,omitempty"`
	Cert           string        `json:"cert,omitempty"`
	Key            string        `json:"key,omitempty"`
	User           string        `json:"user,omitempty"`
	Password       string        `json:"password,omitempty"`
	Prefix         string        `json:"prefix"`
	DialTimeout    time.Duration `json:"dial_timeout"`
	CommandTimeout time.Duration `json:"command_timeout"`
}

// connection returns how others reach the same etcd, as the same user.
func (e *etcd) connection(c *config) connection {
	if c.etcd == nil {
		return connection{
			Endpoints: e.embedded.Endpoints(), Prefix: etcdflags.DefaultPrefix,
			DialTimeout: etcdflags.DefaultDialTimeout, CommandTimeout: etcdflags.DefaultCommandTimeout,
		}
	}
	f := c.etcd
	return connection{
		Endpoints: f.Endpoints, CACert: f.CACert, Cert: f.Cert, Key: f.Key,
		User: f.User, Password: e.client.Password, Prefix: f.Prefix,
		DialTimeout: f.DialTimeout, CommandTimeout: f.CommandTimeout,
	}
}

// client returns a client of that etcd. The caller closes it.
func (c *connection) client(ctx context.Context) (*clientv3.Client, error) {
	f := etcdflags.Flags{
		Endpoints: c.Endpoints, CACert: c.CACert, Cert: c.Cert, Key: c.Key, User: c.User, Prefix: c.Prefix,
		DialTimeout: c.DialTimeout, CommandTimeout: c.CommandTimeout, Stderr: os.Stderr,
		Env: func(name string) string {
			if name == "QUOTIENT_PASSWORD" {
				return c.Password
			}
			return ""
		},
	}
	return f.Client(ctx)
}
