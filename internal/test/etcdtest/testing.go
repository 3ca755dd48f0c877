package etcdtest

import clientv3 "go.etcd.io/etcd/client/v3"

// TB is what this package needs of a testing.TB; programs that embed etcd do
// not link package testing for it.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
	Error(args ...any)
	TempDir() string
}

// New starts a cluster that ends with the test, and a client of it.
func New(t TB, o Options) (*Cluster, *clientv3.Client) {
	t.Helper()
	c, err := Start(o)
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
func NewClient(t TB, c *Cluster, members ...int) *clientv3.Client {
	t.Helper()
	client, err := c.Client(members...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
