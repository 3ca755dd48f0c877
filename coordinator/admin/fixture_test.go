package admin

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests; each has a prefix of its own.
var server *embedded.Cluster

func TestMain(m *testing.M) {
	await.Together(4)
	var err error
	if server, err = embedded.Start(embedded.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(server.Close(), await.Leaks()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

type fixture struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	admin  *Client
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, client: etcdtest.NewClient(t, server), prefix: "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8] + "/"} // also with -count
	var err error
	if f.admin, err = New(f.client, Options{Prefix: f.prefix, Author: "ann@host", Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) set(provider, limits string) Stored {
	f.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.admin.Put(f.t.Context(), provider, quota.Policy{Limits: l})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}
