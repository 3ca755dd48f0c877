package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/quota"
)

const defaultDashboard = "127.0.0.1:8686"

// loopbackHosts are the names by which this machine's browsers reach it.
var loopbackHosts = []string{"localhost", "127.0.0.1", "::1"}

// envToken holds what --token-file does: never an argument.
const envToken = "QUOTIENT_DASHBOARD_TOKEN" //nolint:gosec // the name of a variable, not a secret

type dashboardFlags struct {
	listen         string
	writes         bool
	cert, key      string
	tokenFile      string
	identityHeader string
	proxies        []string
	hosts          []string

	// The results, by plan:
	guard  webguard.Guard
	secure *tls.Config // nil: no TLS
	token  string      // one that was made up for this run
}

func (a *app) dashboardCommand() *cobra.Command {
	var f dashboardFlags
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show providers and fleets live, as a web page",
		Long: `Show providers, limits, instances and history live, as a web page that needs only this
program. While a page is open, instances report once a second.

It reads etcd also while no page is open, so that one that is opened late has the last 15
minutes: the policies every ` + fmt.Sprint(dashboard.RestEvery) + `, and each of the first ` + fmt.Sprint(dashboard.ReadAtMost) + ` providers every ` + fmt.Sprint(dashboard.RememberEvery) + `. It keeps about
400 KB for each of them, and 2 KB for each of their instances.

By default it listens on this machine only and is read-only. With --allow-writes
limits can be set, paused and resumed, with a preview and the checks of set; the
history names the author. That requires a login: a token for each person in
--token-file or ` + envToken + ` (lines "NAME TOKEN"), or a proxy that
authenticates users and names them in --identity-header. Without either, on this
machine, the command prints a link with a token of its own.

On an address other than loopback it requires TLS, and a login also for reading.`,
		Example: `  quota-admin dashboard
  quota-admin dashboard --allow-writes
  quota-admin dashboard --listen 10.0.0.5:8686 --host quota.example.com \
      --tls-cert web.pem --tls-key web-key.pem --token-file tokens --allow-writes
  quota-admin dashboard --identity-header X-Forwarded-User --trusted-proxy 127.0.0.1/32 \
      --host quota.example.com --allow-writes`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultDashboard, "`address` of the page")
	flags.BoolVar(&f.writes, "allow-writes", false, "allow changes of limits, pause and resume")
	flags.StringSliceVar(&f.hosts, "host", nil, "`name` by which browsers reach the page, besides the address; others are refused")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` of the page's certificate")
	flags.StringVar(&f.key, "tls-key", "", "`file` of its key")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` of the people that may log in, a line NAME TOKEN each; or "+envToken)
	flags.StringVar(&f.identityHeader, "identity-header", "", "`header` in which a proxy names the user")
	flags.StringSliceVar(&f.proxies, "trusted-proxy", nil, "`network` that the proxy connects from, as 10.0.0.7/32; required with --identity-header")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return f.plan(cmd, a.env) }
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, _ []string) error {
		ctx, stop := untilInterrupted(ctx)
		defer stop()
		l, err := listenOn(f.listen, "--listen")
		if err != nil {
			return err
		}
		defer l.Close()
		server, err := a.newDashboard(etcd.client, &f)
		if err != nil {
			return err
		}
		a.dashboardSays(l.Addr(), &f)
		return server.Serve(ctx, l, f.secure)
	})
}

func (p *dashboardFlags) plan(cmd *cobra.Command, env func(string) string) error {
	host, _, err := net.SplitHostPort(p.listen)
	near := webguard.Loopback(p.listen)
	p.guard.Hosts = slices.Clone(p.hosts)
	if near {
		p.guard.Hosts = append(p.guard.Hosts, loopbackHosts...)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		p.guard.Hosts = append(p.guard.Hosts, host)
	}
	switch {
	case err != nil:
		return usageError(cmd, "--listen %q: write HOST:PORT, as in %s", p.listen, defaultDashboard)
	case len(p.guard.Hosts) == 0:
		return usageError(cmd, "--listen %s is every address of this machine: say by --host which name browsers use", p.listen)
	case (p.cert == "") != (p.key == ""):
		return usageError(cmd, "--tls-cert and --tls-key belong together")
	case p.cert != "":
		pair, err := certs.Load(p.cert, p.key)
		if err != nil {
			return usageError(cmd, "--tls-cert: %v", err)
		}
		p.secure = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(nil) }}
	case !near:
		return usageError(cmd, "--listen %s can be reached by others: give --tls-cert and --tls-key, or listen on %s", p.listen, defaultDashboard)
	}
	return p.identity(cmd, env, near)
}

func (p *dashboardFlags) identity(cmd *cobra.Command, env func(string) string, near bool) (err error) {
	secret, where := env(envToken), envToken
	if p.tokenFile != "" {
		if secret != "" {
			return usageError(cmd, "--token-file and %s: give one of them", envToken)
		}
		where = "--token-file"
		if secret, err = etcdflags.ReadSecret(p.tokenFile); err != nil {
			return usageError(cmd, "--token-file: %v; write a line NAME TOKEN for each person", err)
		}
	}
	switch {
	case (p.identityHeader == "") != (len(p.proxies) == 0):
		return usageError(cmd, "--identity-header and --trusted-proxy belong together: without a proxy anybody could forge the header")
	case p.identityHeader != "" && secret != "":
		return usageError(cmd, "--identity-header and a token: choose one")
	case p.identityHeader != "":
		return p.upstream(cmd)
	case secret == "" && near && !p.writes:
		p.guard.Anybody = author(env)
		return nil
	case secret == "" && near:
		p.token = rand.Text()
		secret = p.token
	case secret == "":
		return usageError(cmd, "--listen %s can be reached by others: require a login by --token-file, %s or --identity-header", p.listen, envToken)
	}
	if p.guard.Tokens, err = webguard.ParseTokens(secret, author(env)); err != nil {
		return usageError(cmd, "%s: %v", where, err)
	}
	return nil
}

func (p *dashboardFlags) upstream(cmd *cobra.Command) error {
	p.guard.Header = http.CanonicalHeaderKey(p.identityHeader)
	for _, text := range p.proxies {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return usageError(cmd, "--trusted-proxy %q: write a network, as 10.0.0.7/32", text)
		}
		if bits := network.Bits(); bits < 8 || bits < 32 && !network.Addr().Is4() {
			return usageError(cmd, "--trusted-proxy %s: any host there could forge an identity; name the proxy, as 10.0.0.7/32", text)
		}
		p.guard.Proxies = append(p.guard.Proxies, network)
	}
	return nil
}

// readTime is how long the dashboard waits for etcd before it says so.
const readTime = 2 * time.Second

func listenOn(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; %s takes another address", address, err, flag)
	}
	return l, nil
}

func (a *app) newDashboard(client *clientv3.Client, p *dashboardFlags) (*dashboard.Server, error) {
	admin, err := a.admin(client, readTime)
	if err != nil {
		return nil, err
	}
	return dashboard.New(dashboard.Options{
		Admin: admin, Guard: p.guard, Writes: p.writes, Change: webChange(admin), Explain: webExplain,
		Version: readBuildInfo().Version, Log: a.log(),
	}), nil
}

// dashboardSays tells where the page is. A token made up for this run goes into
// the part of the address that browsers keep to themselves.
func (a *app) dashboardSays(at net.Addr, p *dashboardFlags) {
	link := url.URL{Scheme: "http", Host: at.String(), Path: "/"}
	if p.secure != nil {
		link.Scheme = "https"
	}
	if _, port, err := net.SplitHostPort(link.Host); err == nil && !webguard.Loopback(p.listen) {
		link.Host = net.JoinHostPort(p.guard.Hosts[0], port)
	}
	if p.token != "" {
		link.Fragment = "token=" + p.token
	}
	fmt.Fprintf(a.stdout, "dashboard is at %s\n", &link)
}

// webChange makes a change that was asked for on the page, or previews it, with
// the same checks as set, pause and resume.
func webChange(admin *coordinator.Admin) dashboard.ChangeFunc {
	return func(ctx context.Context, c dashboard.Change) (done dashboard.Changed, err error) {
		e := edit{exists: true, revision: c.IfRevision, reason: c.Reason, author: c.Who, dryRun: !c.Write, steps: c.Kind == "set", force: c.Force, resume: c.Kind == "resume"}
		e.next = func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, err error) {
			if mode, ok := map[string]quota.Mode{"pause": quota.ModePause, "resume": ""}[c.Kind]; ok {
				return toMode(ctx, admin, old, mode, now)
			}
			limits, err := quota.ParseLimits(c.Limits)
			if err != nil {
				return p, err
			}
			return (&settings{limits: limits}).apply(old.Policy, now)
		}
		results, err := e.make(ctx, admin, []string{c.Provider})
		if _, far := errors.AsType[*change.StepError](err); far && e.dryRun {
			done.Refused, e.force = webText(err), true
			results, err = e.make(ctx, admin, []string{c.Provider})
		}
		if err != nil {
			return done, err
		}
		r, now := results[0], time.Now()
		done.Revision, done.Old, done.New, done.Effects = r.new.Revision, inWords(r.old.Policy, now), inWords(r.new.Policy, now), effects(r.old.Policy, r.new.Policy, now)
		if e.dryRun {
			done.Shares = r.DryRun
		}
		return done, nil
	}
}

// inWords is a policy's limits, with its mode where that is not the usual one.
func inWords(p quota.Policy, now time.Time) string {
	current := change.Current(p, now).WithDefaults()
	words := change.Limits(&current)
	if current.Mode != quota.ModeEnforce {
		words += " (" + string(current.Mode) + ")"
	}
	return words
}

// webText is an error for the page, which has other ways out than the flags.
func webText(err error) string {
	if step, ok := errors.AsType[*change.StepError](err); ok {
		return step.What + ": tick the box if it is meant"
	}
	return classify(err).Error
}

var statuses = map[int]int{
	exitNotFound: http.StatusNotFound, exitConflict: http.StatusConflict, exitUsage: http.StatusBadRequest,
	exitUnreachable: http.StatusServiceUnavailable, exitPermission: http.StatusForbidden,
	exitFailed: http.StatusUnprocessableEntity, exitRefused: http.StatusUnprocessableEntity, exitLate: http.StatusUnprocessableEntity,
}

func webExplain(err error) (int, string) { return statuses[classify(err).ExitCode], webText(err) }
