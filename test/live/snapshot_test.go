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

	clientv3 "go.etcd.io/etcd/client/v3"
)

// save writes a snapshot of etcd into a file.
func save(t *testing.T, client *clientv3.Client, file string) {
	t.Helper()
	snapshot, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snapshot)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a program and returns what it says.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// fromSnapshot restores etcd from a snapshot, as docs/run.md says.
func (b *backups) fromSnapshot(file string) {
	b.t.Helper()
	const peer = "http://127.0.0.1:1"
	b.swapped(func() error {
		data := filepath.Join(b.dir, "m0")
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		run(b.t, os.Getenv("QUOTIENT_TEST_ETCDUTL"), "snapshot", "restore", file, "--bump-revision", "1000000000", "--mark-compacted",
			"--initial-cluster-token", "restored", "--name", "m0", "--initial-cluster", "m0="+peer, "--initial-advertise-peer-urls", peer,
			"--data-dir", data)
		return nil
	})
}

// A snapshot is restored by etcdutl, as docs/run.md says, within a day of which
// permits were taken before it and after it. Nothing more is handed out until an operator
// says what was used; then the rest of the limit is, once.
func TestABudgetInARestoredSnapshot(t *testing.T) {
	store, client := newBackups(t)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	g := newGroup(t, client, inDays(t, "1/200ms,200/d"))
	m := g.join(1)[0]
	g.awaitIssued(5)
	save(t, client, file)
	g.awaitIssued(g.issued.total() + 20)
	store.fromSnapshot(file)
	g.await("the window is withheld", func() bool { return strings.Contains(m.budget().Withheld, "another cluster ID") })
	g.await("the instance has used what it had", func() bool { b := m.budget(); return b.Used == g.issued.total() && b.Left == 0 })
	used := g.issued.total()
	g.spent(used)
	admin := filepath.Join(t.TempDir(), "quota-admin")
	run(t, "go", "build", "-o", admin, "github.com/quotient-limiter/quotient/cmd/quota-admin")
	out := run(t, admin, "--endpoints", store.Endpoints()[0], "--prefix", g.prefix, "budget", provider, "--used", fmt.Sprint(used))
	if strings.Contains(out, "Withheld") {
		t.Error(out)
	}
	// What is in hand by the instance's report counts as used too: nothing, since it has dropped what it had.
	total, err := g.dayTotal()
	inHand := total.Out - used
	if err != nil || inHand != 0 {
		t.Fatalf("%+v, %v: %d permits count as in hand, want none", total, err, inHand)
	}
	g.awaitIssued(200 - inHand)
	g.spent(200 - inHand)
}
