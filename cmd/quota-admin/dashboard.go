package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/internal/webconfig"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
)

const defaultDashboard = "127.0.0.1:8686"

type dashboardFlags struct {
	listen string
	config string   // of TLS and users; empty: none
	hosts  []string // names of a proxy
}

func (a *app) dashboardCommand() *cobra.Command {
	var f dashboardFlags
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show providers and fleets live, as a web page",
		Long: `Show providers, limits, instances and history live, as a web page that needs only this
program. It changes nothing: use set, pause and resume. While a page is open, instances report
once a second.

It reads etcd also while no page is open, so that one that is opened late has the last 15
minutes: the policies every ` + fmt.Sprint(dashboard.RestEvery) + `, and each of the first ` + fmt.Sprint(dashboard.ReadAtMost) + ` providers every ` + fmt.Sprint(dashboard.RememberEvery) + `. It keeps about
400 KB for each of them, and 2 KB for each of their instances.

By default it listens on this machine only, without a login. On another address it needs TLS
and users, by the web configuration file of Prometheus's exporters:

  tls_server_config: {cert_file: web.pem, key_file: web-key.pem}
  basic_auth_users: {ann: "$2y$10$..."}    # by htpasswd -nBC 10 ann

Or a proxy on this machine knows the people, and --host has the name that they use.`,
		Example: `  quota-admin dashboard
  quota-admin dashboard --listen 10.0.0.5:8686 --web.config.file web.yaml
  quota-admin dashboard --host quota.example.com    # behind a proxy on this machine`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultDashboard, "`address` of the page")
	webconfig.Register(flags, &f.config, "of the page")
	flags.StringSliceVar(&f.hosts, "host", nil, "`name` by which a proxy on this machine is reached, if it passes that on")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := webconfig.Check("--listen", f.listen, f.config); err != nil {
			return usageError(cmd, "%v", err)
		}
		return nil
	}
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
		return server.Serve(ctx, l, f.config)
	})
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

func (a *app) newDashboard(client *clientv3.Client, f *dashboardFlags) (*dashboard.Server, error) {
	admin, err := a.admin(client, readTime)
	if err != nil {
		return nil, err
	}
	o := dashboard.Options{Admin: admin, Explain: webExplain, Log: a.log()}
	if f.config == "" {
		o.Hosts = append([]string{"localhost", "127.0.0.1", "::1"}, f.hosts...)
	}
	return dashboard.New(o), nil
}

// dashboardSays tells where the page is.
func (a *app) dashboardSays(at net.Addr, f *dashboardFlags) {
	link := url.URL{Scheme: "http", Host: at.String(), Path: "/"}
	if webconfig.Secure(f.config) {
		link.Scheme = "https"
	}
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() { // no address to open
		if name, err := os.Hostname(); err == nil {
			link.Host = net.JoinHostPort(name, strconv.Itoa(tcp.Port))
		}
	}
	fmt.Fprintf(a.stdout, "dashboard is at %s\n", &link)
}

var statuses = map[int]int{
	exitNotFound: http.StatusNotFound, exitConflict: http.StatusConflict, exitUsage: http.StatusBadRequest,
	exitUnreachable: http.StatusServiceUnavailable, exitPermission: http.StatusForbidden,
	exitFailed: http.StatusUnprocessableEntity, exitRefused: http.StatusUnprocessableEntity, exitLate: http.StatusUnprocessableEntity,
}

func webExplain(err error) (int, string) {
	c := classify(err)
	return statuses[c.ExitCode], c.Error
}
