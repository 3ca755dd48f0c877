// Package etcdtest gives tests an embedded etcd, clients of it, and certificates.
package etcdtest

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
)

// TB is what this package needs of a testing.TB.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
	Error(args ...any)
	TempDir() string
}

// New starts a cluster that ends with the test, and a client of it.
func New(t TB, o embedded.Options) (*embedded.Cluster, *clientv3.Client) {
	t.Helper()
	c, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, NewClient(t, c)
}

// NewClient returns a client of the given members, or of all, that ends with
// the test.
func NewClient(t TB, c *embedded.Cluster, members ...int) *clientv3.Client {
	t.Helper()
	client, err := c.Client(members...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
