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

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
	"github.com/quotient-limiter/quotient/quota"
)

// restoreByTheBook returns the commands by which the documents restore a member.
func restoreByTheBook(t *testing.T) string {
	t.Helper()
	pages, err := markdown.Pages("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, b := range markdown.Blocks(page.Text) {
			if strings.Contains(b.Text, "etcdutl snapshot restore") {
				return b.Text
			}
		}
	}
	t.Fatal("no document shows how etcdutl restores a member")
	return ""
}

// Three members are restored by the commands of the documents, with other names, addresses
// and folders only. They are one cluster, the fleet goes on, and doctor finds nothing.
func TestSnapshotOfThreeMembers(t *testing.T) {
	dir := t.TempDir()
	cluster, client := etcdtest.New(t, embedded.Options{Members: 3, Dir: dir})
	g := newGroup(t, client, exact(t, "60/200ms", 500*ms))
	all := g.join(3)
	g.ready(all...)
	snapshot, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "quotient.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Numbered as the page's hosts are.
	peers := make([]string, 3)
	for _, m := range before.Members {
		var n int
		if _, err := fmt.Sscanf(m.Name, "m%d", &n); err != nil {
			t.Fatal(err)
		}
		peers[n] = m.PeerURLs[0]
	}
	tools := t.TempDir()
	if err := os.Symlink(os.Getenv("QUOTIENT_TEST_ETCDUTL"), filepath.Join(tools, "etcdutl")); err != nil {
		t.Fatal(err)
	}
	page := restoreByTheBook(t)
	for i := range 3 {
		cluster.Stop(i)
	}
	for i := range 3 {
		script := strings.ReplaceAll(page, "name=etcd-1\n", fmt.Sprintf("name=etcd-%d\n", i+1))
		script = strings.ReplaceAll(script, "https://$name:2380", peers[i])
		script = strings.ReplaceAll(script, "/var/lib/etcd", filepath.Join(dir, fmt.Sprintf("m%d", i)))
		for n, peer := range peers {
			script = strings.ReplaceAll(script, fmt.Sprintf("https://etcd-%d:2380", n+1), peer)
			script = strings.ReplaceAll(script, fmt.Sprintf("etcd-%d", n+1), fmt.Sprintf("m%d", n))
		}
		command := exec.Command("bash", "-euc", script)
		command.Dir, command.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v: %s", script, err, out)
		}
	}
	if err := cluster.Restart(); err != nil {
		t.Fatal(err)
	}
	after, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Members) != 3 || after.Header.ClusterId == before.Header.ClusterId {
		t.Errorf("after the restore: %v, cluster %x, before %x", after.Members, after.Header.ClusterId, before.Header.ClusterId)
	}
	for _, m := range all {
		g.await("an instance goes on in the restored cluster", func() bool {
			st := m.limiter.Status()
			return st.State == quota.StateActive && st.Instances == 3 && st.PolicyRevision != 0 && sharesOf(st) == 20
		})
	}
	admin := filepath.Join(t.TempDir(), "quota-admin")
	if out, err := exec.Command("go", "build", "-o", admin, "github.com/quotient-limiter/quotient/cmd/quota-admin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(admin, "doctor", "--endpoints", strings.Join(cluster.Endpoints(), ","), "--prefix", g.prefix).CombinedOutput()
	if err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

// sharesOf is the share of the shortest limit.
func sharesOf(st consumer.Status) int64 { return st.Shortest().Share }
