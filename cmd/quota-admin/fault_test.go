package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// TestUsageErrorsAreOneLineEach: two at once were printed with a literal \n.
func TestUsageErrorsAreOneLineEach(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	_, stderr := b.want(exitUsage, "set", "p", "5/s", "--if-revision", "-1", "--outage", "explode")
	if strings.Contains(stderr, `\n`) || !strings.Contains(stderr, "--if-revision") || !strings.Contains(stderr, "--outage") {
		t.Error(stderr)
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
