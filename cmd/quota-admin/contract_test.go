package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// TestAMisspeltProviderIsNotCreated: a typing error must not leave the provider
// that was meant as it is.
func TestAMisspeltProviderIsNotCreated(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "100/s") // the first needs no flag
	for _, typo := range []string{"payment/charge", "payments/chagre", "Payments/charge"} {
		_, stderr := b.want(exitRefused, "set", typo, "50/s")
		if !strings.Contains(stderr, "did you mean payments/charge?") || !strings.Contains(stderr, "--create") {
			t.Errorf("%s: %s", typo, stderr)
		}
		if _, stderr := b.want(exitNotFound, "get", typo); !strings.Contains(stderr, "did you mean payments/charge?") {
			t.Errorf("get %s: %s", typo, stderr)
		}
	}
	b.want(exitDone, "set", "payments/refund", "50/s")
	b.want(exitDone, "set", "payment/charge", "50/s", "--create")
	b.want(exitDone, "set", "payments/charg", "50/s", "--if-revision", "0")
	// Names that are numbered, or very short, are no typing errors of each other.
	for _, name := range []string{"worker-1", "worker-2", "a", "b"} {
		b.want(exitDone, "set", name, "50/s")
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"charge", "chagre", 2}, {"ü", "u", 1}, {"same", "same", 0}} {
		if x, y := distance(c.a, c.b), distance(c.b, c.a); x != c.want || y != c.want {
			t.Errorf("%q and %q: %d and %d, want %d", c.a, c.b, x, y, c.want)
		}
	}
}

func TestANegativeLimitIsNoFlag(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	_, stderr := b.want(exitUsage, "set", "p", "-5/s")
	if !strings.Contains(stderr, "limits -5/s: a limit cannot be negative") {
		t.Error(stderr)
	}
}

// TestUsageErrorsAreOneLineEach: two at once were printed with a literal \n.
func TestUsageErrorsAreOneLineEach(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	_, stderr := b.want(exitUsage, "set", "p", "5/s", "--if-revision", "-1", "--outage", "explode")
	if strings.Contains(stderr, `\n`) || !strings.Contains(stderr, "--if-revision") || !strings.Contains(stderr, "--outage") {
		t.Error(stderr)
	}
}

func TestListByPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	for _, p := range []string{"payments/charge", "payments/refund", "mail"} {
		b.want(exitDone, "set", p, "5/s")
	}
	stdout, _ := b.want(exitDone, "list", "payments/", "-o", "json")
	var all struct{ Policies []storedJSON }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all.Policies) != 2 {
		t.Errorf("%v: %s", err, stdout)
	}
	b.want(exitUsage, "list", "a", "b")

	b.want(exitDone, "set", "github", "15000/s", "--keys", "14/s,5000/h sliding")
	if stdout, _ = b.want(exitDone, "list", "github"); !strings.Contains(stdout, "15000/s   14/s,5000/h sliding") {
		t.Errorf("the limits of each key are missing:\n%s", stdout)
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	if stdout, _ := b.want(exitDone, "--version"); stdout != "quota-admin "+buildinfo.Version()+"\n" {
		t.Errorf("%q", stdout)
	}
}

// TestWhoWasRefused: the hint must name the user that etcd saw.
func TestWhoWasRefused(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("ann", "ann")
	nameless, itsKey := authority.Issue("nameless", "")
	for _, c := range []struct {
		flags etcdflags.Flags
		want  string
	}{
		{etcdflags.Flags{}, "no user was given"},
		{etcdflags.Flags{User: "bob"}, "roles of user bob"},
		{etcdflags.Flags{Cert: cert, Key: key}, "the client certificate names the etcd user ann"},
		{etcdflags.Flags{Cert: nameless, Key: itsKey}, "has no common name"},
	} {
		a := &app{etcd: &c.flags}
		got := classify(a.explain(t.Context(), fmt.Errorf("set: %w", coordinator.ErrPermission)))
		if text := strings.Join(got.Hints, "\n"); got.ExitCode != exitPermission || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q, want %q", c.flags, text, c.want)
		}
	}
}

// Who writes to an etcd that is full is told so, and who knows more.
func TestAFullEtcd(t *testing.T) {
	t.Parallel()
	a := &app{etcd: &etcdflags.Flags{}}
	got := classify(a.explain(t.Context(), fmt.Errorf("set: %w", rpctypes.ErrNoSpace)))
	if want := []string{"etcd's database is full: quota-admin doctor says what to do"}; got.ExitCode != exitFailed || !slices.Equal(got.Hints, want) {
		t.Errorf("exit code %d, %q", got.ExitCode, got.Hints)
	}
}

// TestApplyWaitsForAllTogether: one budget for all, not one after the other.
func TestApplyWaitsForAllTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	var document strings.Builder
	document.WriteString("schema: 1\npolicies:\n")
	const n = 10
	for i := range n {
		fmt.Fprintf(&document, "  p%d: {limits: 5/s}\n", i)
		b.put(client, fmt.Sprintf("providers/p%d/instances/silent.1.1", i), protocol.Instance{Name: "silent"})
	}
	file := t.TempDir() + "/p.yaml"
	if err := os.WriteFile(file, []byte(document.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// All are looked at at the same time; then their instances report.
	reported := make(chan error, 1)
	go func() {
		for {
			r, err := client.Get(t.Context(), b.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || r.Count == n {
				reported <- err
				return
			}
		}
	}()
	done := make(chan string, 1)
	go func() {
		_, stdout, stderr := b.call("apply", "-f", file, "--wait=10m", "-o", "json")
		done <- stdout + stderr
	}()
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b.put(client, fmt.Sprintf("reports/p%d/silent.1.1", i), protocol.Report{PolicyRevision: 1 << 40, Time: time.Now()})
	}
	var result applyJSON
	text := <-done
	if err := json.Unmarshal([]byte(text), &result); err != nil || len(result.Changes) != n || result.Changes[n-1].Wait == nil || result.Changes[n-1].Wait.Applied != 1 {
		t.Errorf("%v: %s", err, text)
	}
}
