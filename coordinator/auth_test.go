package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// setupAsConsumer returns a fixture whose client may only do what a consumer of provider p,
// which has this policy, may; and its etcd.
func setupAsConsumer(t *testing.T, policy quota.Policy) (*fixture, *embedded.Cluster) {
	t.Helper()
	cluster, root := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, root)
	consumer, operator := users(t, cluster, root, f.keys)
	operated, err := admin.New(operator, admin.Options{Prefix: f.prefix, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operated.PutIf(t.Context(), "p", policy, 0); err != nil {
		t.Fatal(err)
	}
	f.client = consumer
	return f, cluster
}

// users sets up a consumer of provider p and an operator, turns authentication
// on, and returns a client of each.
func users(t *testing.T, cluster *embedded.Cluster, root *clientv3.Client, k keys.Layout) (consumer, operator *clientv3.Client) {
	t.Helper()
	ctx, do := t.Context(), doing(t)
	grant := func(role, prefix string, kind clientv3.PermissionType) { permit(t, root, role, prefix, kind) }
	await.Until(t, "there is a role", func() bool { return do(root.RoleAdd(ctx, "consumer")) })
	await.Until(t, "there is a role", func() bool { return do(root.RoleAdd(ctx, "operator")) })
	grant("consumer", k.Provider("p"), clientv3.PermissionType(clientv3.PermRead))
	grant("consumer", k.Instances("p"), clientv3.PermissionType(clientv3.PermReadWrite))
	grant("consumer", k.Issuers("p"), clientv3.PermissionType(clientv3.PermReadWrite))
	grant("consumer", k.Reports("p"), clientv3.PermissionType(clientv3.PermReadWrite))
	grant("operator", k.Prefix(), clientv3.PermissionType(clientv3.PermReadWrite))
	for _, name := range []string{"root", "consumer", "operator"} {
		await.Until(t, "there is a user", func() bool { return do(root.UserAdd(ctx, name, name+"-secret")) })
		await.Until(t, "a user has a role", func() bool { return do(root.UserGrantRole(ctx, name, name)) })
	}
	await.Until(t, "authentication is on", func() bool { return do(root.AuthEnable(ctx)) })
	return login(t, cluster, "consumer"), login(t, cluster, "operator")
}

// permit gives a role a right on all keys that begin with a prefix.
func permit(t *testing.T, root *clientv3.Client, role, prefix string, kind clientv3.PermissionType) {
	t.Helper()
	do := doing(t)
	await.Until(t, "a right is granted", func() bool {
		return do(root.RoleGrantPermission(t.Context(), role, prefix, clientv3.GetPrefixRangeEnd(prefix), kind))
	})
}

// doing returns a function that reports whether etcd has done something: it is to be asked again where it takes its time.
func doing(t *testing.T) func(_ any, err error) bool {
	return func(_ any, err error) bool {
		if err != nil && !errors.Is(err, rpctypes.ErrTimeout) && !strings.Contains(err.Error(), "already") {
			t.Fatal(err)
		}
		return err == nil || !errors.Is(err, rpctypes.ErrTimeout)
	}
}

// login returns a client of one of the users.
func login(t *testing.T, cluster *embedded.Cluster, name string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cluster.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop(),
		Username: name, Password: name + "-secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAConsumersRoleSuffices(t *testing.T) {
	t.Parallel()
	cluster, root := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, root)
	consumer, operator := users(t, cluster, root, f.keys)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: 500 * time.Millisecond}}
	as := func(c *clientv3.Client) *admin.Client {
		operated, err := admin.New(c, admin.Options{Prefix: f.prefix, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return operated
	}
	if _, err := as(operator).PutIf(t.Context(), "p", policy, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := as(consumer).Put(t.Context(), "p", policy); !errors.Is(err, ErrPermission) {
		t.Errorf("%v: a consumer must not set policies", err)
	}
	override := func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
		return map[string]*protocol.Override{"installation-4711": {Limits: []quota.Limit{{Permits: 9, Window: time.Second}}}}, nil
	}
	if _, err := feed.Inside(as(consumer)).SetOverrides(t.Context(), "p", "", override); err != nil && !errors.Is(err, ErrPermission) || err == nil {
		t.Errorf("%v: a consumer must not set overrides", err)
	}
	f.client = consumer
	s := f.join(Options{})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	// A role of the time before loans does not do for these.
	await.Until(t, "it is told to lend no more", a.is(func(r *recorder) bool { return slices.Contains(r.log, "mute") }))
	other, _ := f.subscribe(s, "q")
	await.Until(t, "it is told that it may not consume q", other.is(func(r *recorder) bool {
		return errors.Is(r.trouble, ErrPermission) && strings.HasSuffix(r.trouble.Error(), "; quota-admin roles consumer q --to USER grants it")
	}))
	await.Until(t, "a report", func() bool {
		all, err := feed.Inside(as(operator)).Fleet(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		return len(all.Instances) == 1 && all.Instances[0].Report != nil
	})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if all, err := feed.Inside(as(operator)).Fleet(t.Context(), "p"); err != nil || len(all.Instances) != 0 {
		t.Errorf("%d instances are left, %v", len(all.Instances), err)
	}
}

// Of the two roles of a user one is revoked. Each line that speaks of a role, and each limiter that is told, names the
// provider of that one, and it alone lends no more. When it is granted again, all goes on.
func TestARevokedRoleIsToldByItsProvider(t *testing.T) {
	t.Parallel()
	cluster, noAuth := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, noAuth)
	f.set("p", "10/s")
	f.set("q", "10/s")
	consumer, _ := users(t, cluster, noAuth, f.keys)
	root, ctx, do := login(t, cluster, "root"), t.Context(), doing(t)
	await.Until(t, "there is another role", func() bool { return do(root.RoleAdd(ctx, "q")) })
	for _, folder := range []string{f.keys.AllLoans("p"), f.keys.AllAsks("p"), f.keys.Provider("q"), f.keys.Issuers("q"), f.keys.Reports("q"), f.keys.AllLoans("q"), f.keys.AllAsks("q")} {
		role := map[bool]string{true: "consumer", false: "q"}[strings.Contains(folder, "/p/")]
		permit(t, root, role, folder, clientv3.PermissionType(clientv3.PermReadWrite))
	}
	await.Until(t, "the user has it too", func() bool { return do(root.UserGrantRole(ctx, "consumer", "q")) })
	f.client = consumer
	var log lines
	s := f.join(Options{TTL: 8 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	q, _ := f.subscribe(s, "q")
	await.Until(t, "a proof", q.is(proved))
	p, _ := f.subscribe(s, "p") // its key is the newest: the one that is read for all
	await.Until(t, "a proof", p.is(proved))
	lends := func(r *recorder) bool { return r.carrier != nil }
	if !p.is(lends)() || !q.is(lends)() {
		t.Fatalf("not both may lend: %s", log.String())
	}
	await.Until(t, "the role is revoked", func() bool { return do(root.UserRevokeRole(ctx, "consumer", "consumer")) })
	await.Until(t, "p lends no more", func() bool {
		var letters []letter
		for _, r := range []*recorder{p, q} {
			self := r.told().self
			letters = append(letters, letter{f.only(r), self, f.keys.Loans(f.only(r).Provider, "guest") + self, []protocol.Note{loanOf(1)}})
		}
		s.send(letters)
		return !p.is(lends)()
	})
	if !q.is(lends)() {
		t.Errorf("q lends no more: %s", log.String())
	}
	const grants = "quota-admin roles consumer p --to USER grants it"
	await.Until(t, "q is told of p", q.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "may not read "+f.keys.Provider("p")) && cause.Admit(r.trouble, "q") == grants
	}))
	await.Until(t, "p may not join again", p.is(func(r *recorder) bool { return r.trouble != nil && strings.Contains(r.trouble.Error(), "register") }))
	await.Until(t, "q goes on", q.is(func(r *recorder) bool { return proved(r) && r.trouble == nil }))
	for _, parts := range [][]string{
		{"may not lend or borrow: the etcd user of this program may not write " + f.keys.AllLoans("p"), "provider=p"},
		{"the lease cannot be renewed", "may not write " + f.keys.Instances("p")},
		{"the lease has ended in etcd"},
		{"etcd does not let this program take part", "folder=" + f.keys.Provider("q")},
	} {
		if !log.has(append(parts, grants)...) {
			t.Errorf("no line has %q", parts)
		}
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "quota-admin roles") && !strings.Contains(line, grants) {
			t.Error(line)
		}
	}
	await.Until(t, "the role is granted", func() bool { return do(root.UserGrantRole(ctx, "consumer", "consumer")) })
	await.Until(t, "p goes on, and lends", p.is(func(r *recorder) bool { return proved(r) && r.trouble == nil && lends(r) }))
}

// A user who may read all providers need not be one who may read the asks of all: then each provider hears of its own.
func TestAsksOfAllMayNotBeRead(t *testing.T) {
	t.Parallel()
	cluster, noAuth := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, noAuth)
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	folders := []string{f.keys.Provider(""), f.keys.Issuers(""), f.keys.Reports(""), f.keys.AllLoans("")}
	for i := range mostApart + 1 {
		f.set(name(i), "10/s")
		folders = append(folders, f.keys.AllAsks(name(i)))
	}
	consumer, operator := users(t, cluster, noAuth, f.keys)
	root := login(t, cluster, "root")
	for _, folder := range folders {
		permit(t, root, "consumer", folder, clientv3.PermissionType(clientv3.PermReadWrite))
	}
	carries := func(r *recorder) bool { return proved(r) && members(2)(r) && r.carrier != nil }
	f.client = operator
	guest, _ := f.subscribe(f.join(Options{Name: "guest"}), name(0))
	f.client = consumer
	s := f.join(Options{Name: "host"})
	host, _ := f.subscribe(s, name(0))
	await.Until(t, "both carry", func() bool { return host.is(carries)() && guest.is(carries)() })
	for i := range mostApart {
		f.subscribe(s, name(i+1))
	}
	await.Until(t, "all hear apart", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.apart
	})
	from, to := guest.told().self, host.told().self
	await.Until(t, "an ask arrives", func() bool {
		guest.carrier.Ask(from, asksOf(to, 1000))
		return host.is(func(r *recorder) bool { return slices.Contains(r.asked, wanted{from, 1000}) })()
	})
	if text := host.told().log; strings.Contains(text, "mute") {
		t.Error(text)
	}
}

// TestARoleThatIsNarrowedMissesNothing: the policy changes while the session's watch is
// closed, which may not be opened again. The provider's own watch begins later.
func TestARoleThatIsNarrowedMissesNothing(t *testing.T) {
	t.Parallel()
	cluster, noAuth := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, noAuth)
	consumer, operator := users(t, cluster, noAuth, f.keys)
	root := login(t, cluster, "root")
	all := f.keys.Provider("")
	if _, err := root.RoleGrantPermission(t.Context(), "consumer", all, clientv3.GetPrefixRangeEnd(all), clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	operated, err := admin.New(operator, admin.Options{Prefix: f.prefix, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	set := func(permits int64) {
		t.Helper()
		if _, err := operated.Put(t.Context(), "p", quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}); err != nil {
			t.Error(err)
		}
	}
	set(100)
	f.client = consumer
	s := f.join(Options{})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	p := f.only(a)
	s.mu.Lock() // nothing the watch says is taken before all this is done
	if s.mu.Narrow() {
		t.Error("it has a line for each provider already")
	}
	if _, err := root.RoleRevokePermission(t.Context(), "consumer", all, clientv3.GetPrefixRangeEnd(all)); err != nil {
		t.Error(err)
	}
	s.onlyWatch().open.end()
	set(1)
	s.mu.Unlock()
	await.Until(t, "a line of its own", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.Narrow() && p.Standing(0).Cluster != 0
	})
	narrowed := s.o.Clock.Mono()
	await.Until(t, "a newer proof", a.is(func(r *recorder) bool { return r.proof.Mono > narrowed }))
	a.is(func(r *recorder) bool {
		if n := r.view.Policy.Limits[0].Permits; n != 1 {
			t.Errorf("a view with %d permits is proved; etcd has 1", n)
		}
		return true
	})()
}

// A role that lacks the budgets is a problem of the provider, and logged once, not with each attempt.
func TestADeniedTakingIsToldOnce(t *testing.T) {
	t.Parallel()
	f, _ := setupAsConsumer(t, quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, {Permits: 100, Window: 24 * time.Hour}}})
	var log bytes.Buffer
	s := f.join(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	p := f.only(r)
	uses := []escrow.KeyUse{{Budget: protocol.BudgetAt(quota.Limit{Permits: 100, Window: 24 * time.Hour}, time.UTC, p.s.o.Clock.Wall()), Share: 1, Use: escrow.Use{Need: 1}}}
	for range 3 {
		if err := p.exchange(t.Context(), takingTries, p.standing().Policy, uses); !errors.Is(err, ErrPermission) {
			t.Fatalf("%v: its role allows no budgets", err)
		}
	}
	await.Until(t, "the limiter is told", r.is(func(r *recorder) bool { return errors.Is(r.trouble, ErrPermission) }))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), `grants it" do="quota-admin roles consumer p --to USER grants it"`); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, log.String())
	}
}

// A program that gives no user, on an etcd that asks for one, is told to give one, by its log and when it starts again. No
// line says that etcd is away.
func TestAProgramWithoutAUser(t *testing.T) {
	t.Parallel()
	cluster, noUser := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, noUser)
	f.set("p", "100/s")
	var log lines
	s := f.join(Options{TTL: minTTL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	users(t, cluster, noUser, f.keys)
	// The lease is no part of it: etcd 3.5 renews one without a user.
	await.Until(t, "the log says what to do", func() bool { return log.has(`do="give this program an etcd user: `) })
	await.Until(t, "the limiter is told", r.is(func(r *recorder) bool { return errors.Is(r.trouble, cause.ErrNoUser) }))
	if err := s.Close(); !errors.Is(err, ErrPermission) {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, cause.LeaveRunning) || strings.Contains(text, "quota-admin roles") || strings.Contains(text, "connecting anew") {
		t.Error(text)
	}
	if found := diagnose.Endpoints(t.Context(), noUser, nil); !found[0].Answers {
		t.Error(found)
	}
	again, err := Join(t.Context(), noUser, Options{Prefix: f.prefix})
	if err == nil { // etcd 3.5 grants a lease, too, without a user
		sink, leave, _ := again.subscribe("p", func() feed.Sink { return &recorder{} })
		r := sink.(*recorder)
		await.Until(t, "the limiter is told", r.is(func(r *recorder) bool { return r.trouble != nil }))
		r.is(func(r *recorder) bool { err = r.trouble; return true })()
		_, _ = leave(), again.Close() // etcd refuses these
	}
	if !errors.Is(err, ErrPermission) || strings.Contains(err.Error(), "no etcd answers") || !strings.Contains(err.Error(), "user name is empty; give this program an etcd user") {
		t.Error(err)
	}
}

// lines are those of a log, which many write.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// has reports whether a line has all parts.
func (l *lines) has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}

// A wrong password costs etcd as much as a right one. A session whose password etcd refuses logs in seldom, and less often
// the longer that lasts, or the operator could not log in to give the password back. Then it goes on.
func TestARefusedPasswordIsNotGivenAgainAndAgain(t *testing.T) {
	t.Parallel()
	f, cluster := setupAsConsumer(t, quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}})
	root := login(t, cluster, "root")
	var logins atomic.Int64
	count := func(ctx context.Context, method string, in, out any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if method == pb.Auth_Authenticate_FullMethodName {
			logins.Add(1)
		}
		return invoke(ctx, method, in, out, c, o...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cluster.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop(), Username: "consumer", Password: "consumer-secret",
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	f.client = client
	var log lines
	s := f.join(Options{TTL: minTTL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	if _, err := root.UserChangePassword(t.Context(), "consumer", "another"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it is told what to do", r.is(func(r *recorder) bool { return errors.Is(r.trouble, cause.ErrLogin) }))
	began, before := time.Now(), logins.Load()
	await.Until(t, "six seconds are over", func() bool { return time.Since(began) > 6*time.Second })
	if n := logins.Load() - before; n < 1 || n > 8 { // pauses of at least 0.5, 1, 2 and 4 s; and those under way at the first refusal
		t.Errorf("%d logins in %v", n, time.Since(began))
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "etcd does not permit it") && !strings.Contains(line, "correct the etcd user and the password") {
			t.Error(line)
		}
	}
	if _, err := root.UserChangePassword(t.Context(), "consumer", "consumer-secret"); err != nil {
		t.Fatal(err)
	}
	given := s.o.Clock.Mono()
	await.Until(t, "it goes on", r.is(func(r *recorder) bool { return r.proof.Mono > given && r.trouble == nil }))
}
