package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// TestRolesSuffice: what every role is for works.
func TestRolesSuffice(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	quiet := slog.New(slog.DiscardHandler)
	s, err := coordinator.Join(t.Context(), g.as("charge"), coordinator.Options{Prefix: g.prefix, Name: "worker", Logger: quiet, Lazy: true, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := consumer.Open(t.Context(), s, "payments/charge", consumer.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for user, limit := range map[string]string{"ann": "50/s", "bob": "60/s"} {
		stdout, _ := g.tool(user, exitDone, "set", "payments/charge", limit, "--wait")
		if !strings.Contains(stdout, "applied by 1 of 1 instance at") {
			t.Errorf("%s: %s", user, stdout)
		}
		g.tool(user, exitDone, "history", "payments/charge")
		g.tool(user, exitDone, "pause", "payments/charge")
		g.tool(user, exitDone, "resume", "payments/charge")
		g.tool(user, exitDone, "export", "payments/charge")
	}
	watchers := map[string]*live.Watcher{}
	for _, user := range []string{"carol", "dave"} {
		operator, err := admin.New(g.as(user), admin.Options{Prefix: g.prefix, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		watchers[user] = live.NewWatcher(operator, 0)
		if _, err := watchers[user].Look(t.Context(), "payments/charge"); err != nil {
			t.Fatal(err)
		}
		stdout, _ := g.tool(user, exitDone, "instances", "payments/charge", "-o", "json")
		if !strings.Contains(stdout, `"worker"`) {
			t.Errorf("%s: %s", user, stdout)
		}
		g.tool(user, exitDone, "history", "payments/charge")
	}
	g.tool("carol", exitDone, "list")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for user, w := range watchers { // nobody has looked while the end was announced
		p, err := w.Look(t.Context(), "payments/charge")
		if err != nil || len(p.Events) != 1 || p.Events[0].Text != "Left worker" {
			t.Errorf("%s sees %+v, %v", user, p.Events, err)
		}
	}
}

// TestABackoffOfTheFleet: one instance is asked for a pause, with the rights of a
// consumer. The other issues nothing until an operator ends it.
func TestABackoffOfTheFleet(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	quiet := slog.New(slog.DiscardHandler)
	var limiters []*consumer.Limiter
	for range 2 {
		s, err := coordinator.Join(t.Context(), g.as("charge"), coordinator.Options{Prefix: g.prefix, Logger: quiet, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		l, err := consumer.Open(t.Context(), s, "payments/charge", consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	all := func(state quota.State) func() bool {
		return func() bool { return limiters[0].Status().State == state && limiters[1].Status().State == state }
	}
	await.Until(t, "both have shares", all(quota.StateActive))
	for _, user := range []string{"ann", "bob"} {
		limiters[0].Throttled(time.Minute, "429 from api")
		if st := limiters[0].Status(); st.State != quota.StatePausing || st.PauseReason != "429 from api" {
			t.Errorf("the one that was asked is %s: %q", st.State, st.PauseReason)
		}
		await.Until(t, "both are held back", all(quota.StatePausing))
		if st := limiters[1].Status(); st.PauseReason != limiters[0].Status().Incarnation+": 429 from api (said by 1 of 2 instances)" || time.Until(st.PausedUntil) > time.Minute {
			t.Errorf("the other one until %v: %q", st.PausedUntil, st.PauseReason)
		}
		for _, command := range []string{"get", "history"} {
			if stdout, _ := g.tool("dave", exitDone, command, "payments/charge"); !strings.Contains(stdout, "429 from api") {
				t.Errorf("nobody sees it: %s", stdout)
			}
		}
		if stdout, _ := g.tool(user, exitDone, "resume", "payments/charge"); !strings.Contains(stdout, "is ended") || strings.Contains(stdout, "not paused") {
			t.Errorf("%s: %s", user, stdout)
		}
		await.Until(t, "both go on", all(quota.StateActive))
	}
}

// TestRolesDoNotGoFurther tries, as every user, what the role is not for.
func TestRolesDoNotGoFurther(t *testing.T) {
	g := newGuarded(t)
	k := func(key string) string { return g.prefix + key }
	const charge, refund = "payments%2Fcharge/", "payments%2Frefund/"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	other, err := g.as("refund").Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.as("refund").Put(ctx, k("providers/"+refund+"instances/victim"), "{}", clientv3.WithLease(other.ID)); err != nil {
		t.Fatal(err)
	}
	put := func(key string) func(*clientv3.Client) error {
		return func(c *clientv3.Client) error { _, err := c.Put(ctx, key, "{}"); return err }
	}
	get := func(key string, o ...clientv3.OpOption) func(*clientv3.Client) error {
		return func(c *clientv3.Client) error { _, err := c.Get(ctx, key, o...); return err }
	}
	remove := func(key string, o ...clientv3.OpOption) func(*clientv3.Client) error {
		return func(c *clientv3.Client) error { _, err := c.Delete(ctx, key, o...); return err }
	}
	watch := func(key string) func(*clientv3.Client) error {
		return func(c *clientv3.Client) error {
			r := <-c.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			return r.Err()
		}
	}
	attacks := []struct {
		name  string
		users string
		try   func(*clientv3.Client) error
	}{
		{"write a policy", "charge refund carol dave", put(k("providers/" + charge + "policy"))},
		{"delete a policy", "charge refund carol dave", remove(k("providers/" + charge + "policy"))},
		{"write overrides of keys", "charge refund carol dave", put(k("providers/" + charge + "overrides/07"))},
		{"write a policy within a transaction", "charge carol dave", func(c *clientv3.Client) error {
			_, err := c.Txn(ctx).Then(clientv3.OpPut(k("providers/"+charge+"instances/x"), "{}"), clientv3.OpPut(k("providers/"+charge+"policy"), "{}")).Commit()
			return err
		}},
		{"write a policy in a branch that is not taken", "charge carol dave", func(c *clientv3.Client) error {
			_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(k("providers/"+charge+"policy")), "=", 0)).
				Then(clientv3.OpPut(k("providers/"+charge+"policy"), "{}")).Commit()
			return err
		}},
		{"be an instance of another provider", "charge bob carol dave", put(k("providers/" + refund + "instances/x"))},
		{"delete another provider's instances", "charge bob carol dave", remove(k("providers/"+refund+"instances/"), clientv3.WithPrefix())},
		{"revoke another provider's lease", "charge bob carol dave", func(c *clientv3.Client) error { _, err := c.Revoke(ctx, other.ID); return err }},
		{"read another provider", "charge bob dave", get(k("providers/"+refund), clientv3.WithPrefix())},
		{"watch another provider", "charge bob dave", watch(k("providers/" + refund))},
		{"read all providers", "charge refund bob dave", get(k("providers/"), clientv3.WithPrefix())},
		{"write another provider's report", "charge bob carol dave", put(k("reports/" + refund + "x"))},
		{"hold back another provider's instances", "charge bob carol dave", put(k("providers/" + refund + "throttle"))},
		{"hold back instances", "carol dave", put(k("providers/" + charge + "throttle"))},
		{"read a history", "charge refund", get(k("history/"+charge), clientv3.WithPrefix())},
		{"forge a history", "charge refund carol dave", put(k("history/" + charge + "x"))},
		{"let settle be lowered too soon", "charge refund carol dave", remove(k("superseded/"+charge), clientv3.WithPrefix())},
		{"make a fleet report every second", "charge refund carol dave", put(k("observers/" + charge + "x"))},
		{"write a report", "ann bob carol dave", put(k("reports/" + charge + "x"))},
		{"be an instance", "bob carol dave", put(k("providers/" + charge + "instances/x"))},
		{"set another provider's policy", "bob", put(k("providers/" + refund + "policy"))},
		{"write elsewhere", "charge refund ann bob carol dave", put("/elsewhere")},
		{"read elsewhere", "charge refund ann bob carol dave", get("/elsewhere")},
		{"write beside the prefix", "charge refund ann bob carol dave", put(strings.TrimSuffix(g.prefix, "/"))},
		{"delete everything", "charge refund ann bob carol dave", remove("\x00", clientv3.WithFromKey())},
		{"give itself a role", "charge refund ann bob carol dave", func(c *clientv3.Client) error { _, err := c.UserGrantRole(ctx, "charge", "root"); return err }},
		{"grant its role more", "charge refund ann bob carol dave", func(c *clientv3.Client) error {
			_, err := c.RoleGrantPermission(ctx, "quotient-reader", "\x00", "\x00", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		}},
		{"add a user", "charge refund ann bob carol dave", func(c *clientv3.Client) error { _, err := c.UserAdd(ctx, "eve", "x"); return err }},
		{"change a password", "charge refund ann bob carol dave", func(c *clientv3.Client) error { _, err := c.UserChangePassword(ctx, "root", "x"); return err }},
		{"switch authentication off", "charge refund ann bob carol dave", func(c *clientv3.Client) error { _, err := c.AuthDisable(ctx); return err }},
		{"compact the store's history", "charge refund ann bob carol dave", func(c *clientv3.Client) error { _, err := c.Compact(ctx, 1); return err }},
		{"copy the whole store", "charge refund ann bob carol dave", func(c *clientv3.Client) error {
			r, err := c.SnapshotWithVersion(ctx)
			if err == nil {
				_, err = r.Snapshot.Read(make([]byte, 1))
			}
			return err
		}},
	}
	clients := map[string]*clientv3.Client{}
	for _, attack := range attacks {
		for user := range strings.FieldsSeq(attack.users) {
			if clients[user] == nil {
				clients[user] = g.as(user)
			}
			if err := attack.try(clients[user]); !denied(err) {
				t.Errorf("%s could %s: %v", user, attack.name, err)
			}
		}
	}
	if r, err := g.as("root").Get(ctx, k("providers/"+refund+"instances/victim")); err != nil || len(r.Kvs) != 1 {
		t.Errorf("the victim is gone, %v", err)
	}
	for user, args := range map[string]string{
		"carol": "set payments/charge 5/s --force", "dave": "pause payments/charge", "charge": "set payments/charge 5/s --force", "bob": "set payments/refund 5/s --force",
	} {
		g.tool(user, exitPermission, strings.Fields(args)...)
		g.tool(user, exitPermission, "roles", "operator", "--to", user)
	}
}

// TestNoLogHoldsAPassword: also not one that etcd refuses.
func TestNoLogHoldsAPassword(t *testing.T) {
	g := newGuarded(t)
	_, right := g.tool("bob", exitDone, "get", "payments/charge", "--debug")
	_, wrong := g.tool("nobody", exitPermission, "get", "payments/charge", "--debug")
	for _, said := range []string{right, wrong} {
		if said == "" || strings.Contains(said, secret) {
			t.Errorf("the log is empty, or holds the password: %s", said)
		}
	}
}

func TestRolesAreSetRight(t *testing.T) {
	cluster, root := etcdtest.New(t, embedded.Options{})
	b := newBench(t, cluster)
	stdout, _ := b.want(exitDone, "roles", "consumer", "p", "--dry-run", "-o", "json")
	var role roleResult
	if err := json.Unmarshal([]byte(stdout), &role); err != nil || len(role.Grants) != 9 || !role.DryRun {
		t.Fatal(err, stdout)
	}
	if stdout, stderr := b.want(exitDone, "roles", "list"); stdout != "" || !strings.Contains(stderr, "no role") {
		t.Errorf("a dry run wrote %s", stdout)
	}
	b.want(exitDone, "roles", "consumer", "p")
	// Somebody grants more; the tool takes it back.
	if _, err := root.RoleGrantPermission(t.Context(), role.Name, b.prefix, clientv3.GetPrefixRangeEnd(b.prefix), clientv3.PermissionType(clientv3.PermWrite)); err != nil {
		t.Fatal(err)
	}
	_, stderr := b.want(exitDone, "roles", "consumer", "p")
	if !strings.Contains(stderr, "authentication is off") {
		t.Errorf("nobody says that roles do not count: %s", stderr)
	}
	stdout, _ = b.want(exitDone, "roles", "list", "-o", "json")
	var list struct{ Roles []roleResult }
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Roles) != 1 || len(list.Roles[0].Grants) != len(role.Grants) {
		t.Errorf("%v: %s", err, stdout)
	}
	// Users.
	b.want(exitUsage, "roles", "consumer")
	b.want(exitUsage, "roles", "reader", "--no-password")
	if _, stderr := b.want(exitFailed, "roles", "reader", "--to", "carol"); !strings.Contains(stderr, "needs a password") {
		t.Error(stderr)
	}
	if r, err := root.UserList(t.Context()); err != nil || len(r.Users) != 0 {
		t.Errorf("users %v, %v: one without a password must not be added", r.Users, err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr = b.want(exitDone, "roles", "reader", "--to", "carol", "--new-password-file", file)
	if !strings.Contains(stdout, "added user carol and granted it quotient-reader") || strings.Contains(stdout+stderr, "pw") {
		t.Error(stdout, stderr)
	}
	if stdout, _ = b.want(exitDone, "roles", "consumer", "p", "--to", "carol"); !strings.Contains(stdout, "whose password is as it was") {
		t.Error(stdout)
	}
}

// TestEverythingByCertificate: TLS with client certificates and authentication by
// their common name, without a password anywhere.
func TestEverythingByCertificate(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("etcd", "etcd")
	cluster, err := embedded.Start(embedded.Options{TLS: &embedded.TLS{Cert: cert, Key: key, CA: authority.File}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	b := newBench(t, cluster)
	b.env["QUOTIENT_CACERT"] = authority.File
	be := func(name string) { b.env["QUOTIENT_CERT"], b.env["QUOTIENT_KEY"] = authority.Issue(name, name) }
	if _, stderr := b.want(exitUnreachable, "list", "--dial-timeout", "5s"); !strings.Contains(stderr, "--cert and --key") {
		t.Errorf("no certificate: %s", stderr)
	}
	be("carol")
	if _, stderr := b.want(exitUsage, "roles", "enable", "--no-password"); !strings.Contains(stderr, `--cert is of "carol"`) {
		t.Errorf("root is locked out: %s", stderr)
	}
	be("root")
	for _, args := range []string{"reader --to carol", "operator --to ann"} {
		b.want(exitDone, append([]string{"roles"}, append(strings.Fields(args), "--no-password")...)...)
	}
	for range 2 { // the second changes nothing
		if stdout, _ := b.want(exitDone, "roles", "enable", "--no-password"); stdout != "authentication is on\n" {
			t.Error(stdout)
		}
	}
	b.want(exitDone, "roles", "reader", "--to", "dave", "--no-password")
	be("ann")
	b.want(exitDone, "set", "payments/charge", "100/s")
	be("carol")
	b.want(exitDone, "get", "payments/charge")
	b.want(exitPermission, "set", "payments/charge", "50/s")
	be("mallory") // signed, but no user
	b.want(exitPermission, "list")
}
