//go:build compat

// Package compat tries Quotient against released etcd servers; see README.md.
package compat

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// tooOld is the version of tooold in the file versions.
const tooOld = "3.5.21"

// The server is the one that QUOTIENT_TEST_ETCD names. Its watches can deliver
// events out of order, so nobody may join, and the version must be said.
func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{})
	status, err := client.Status(t.Context(), cluster.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	if status.Version != tooOld {
		t.Fatalf("the server is %s, want %s", status.Version, tooOld)
	}
	session, err := coordinator.Join(t.Context(), client, coordinator.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_ = session.Close()
		t.Fatalf("etcd %s was taken", status.Version)
	}
	if !strings.Contains(err.Error(), "version "+status.Version+" is too old") {
		t.Errorf("%v: does not name version %s", err, status.Version)
	}
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 0 {
		t.Errorf("%d leases were left behind, %v", len(leases.Leases), err)
	}
}
