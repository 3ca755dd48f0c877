//go:build compat

package live_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
)

// A snapshot is restored by etcdutl, as docs/operations.md says, within a day of which
// permits were taken before it and after it. Nothing more is handed out until an operator
// says what was used; then all of the limit is, once.
func TestABudgetInARestoredSnapshot(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.db")
	cluster, client := etcdtest.New(t, etcdtest.Options{Dir: dir})
	g := newGroupOn(t, client, inDays(t, "100/200ms,60/d"))
	m := g.join(1)[0]
	g.issued(5)
	snapshot, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	g.issued(g.ledger.total() + 20)
	cluster.Stop(0)
	if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const peer = "http://127.0.0.1:1"
	run(os.Getenv("QUOTIENT_TEST_ETCDUTL"), "snapshot", "restore", file, "--bump-revision", "1000000000", "--mark-compacted",
		"--initial-cluster-token", "restored", "--name", "m0", "--initial-cluster", "m0="+peer, "--initial-advertise-peer-urls", peer,
		"--data-dir", filepath.Join(dir, "m0"))
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	g.await("the window is withheld", func() bool { return g.budgetTotal(client).Withheld != "" })
	if why := g.budgetTotal(client).Withheld; !strings.Contains(why, "another cluster ID") {
		t.Errorf("withheld: %s", why)
	}
	g.await("the instance has used what it had", func() bool { b := m.budget(); return b.Used > 0 && b.Left == 0 })
	used := g.ledger.total()
	g.spent(used)
	admin := filepath.Join(t.TempDir(), "quota-admin")
	run("go", "build", "-o", admin, "github.com/quotient-limiter/quotient/cmd/quota-admin")
	out := run(admin, "--endpoints", cluster.Endpoints()[0], "--prefix", g.prefix, "budget", provider, "--used", fmt.Sprint(used))
	if strings.Contains(out, "Withheld") {
		t.Error(out)
	}
	g.issued(60)
	g.spent(60)
}
