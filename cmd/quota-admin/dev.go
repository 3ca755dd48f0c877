package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/internal/webconfig"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// The sample that dev starts with.
const (
	sampleProvider = "demo/api"
	sampleLimit    = 1000 // permits a second

	defaultListen = "127.0.0.1:2379"
)

type devFlags struct {
	listen    string
	data      string
	instances int
	dashboard string // empty: none
}

func (a *app) devCommand() *cobra.Command {
	f := devFlags{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an etcd with a sample provider, a small fleet and the dashboard, to try things",
		Long: `Run a trial of Quotient in one process: an etcd, a sample provider, a few instances
that use it, and the dashboard. Ctrl-C ends it, and deletes all data but those of --data.

This etcd has one member, no authentication and no TLS, and does not wait for the
disk. Only this machine reaches it. It is not for production.`,
		Example: `  quota-admin dev
  quota-admin dev --listen 127.0.0.1:12379 --data ./etcd-data --instances 8`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "`address` of the etcd")
	flags.StringVar(&f.data, "data", "", "`folder` for etcd's data, which is kept; default: in memory, or a temporary folder")
	flags.IntVar(&f.instances, "instances", 3, "how many instances use the sample provider")
	flags.StringVar(&f.dashboard, "dashboard", defaultDashboard, "`address` of the dashboard, on this machine; empty: none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if portless(f.listen) {
			return usageError(cmd, "--listen %s: lacks a host or a port; write it like %s", f.listen, defaultListen)
		}
		if !webconfig.Loopback(f.listen) {
			return usageError(cmd, "--listen %s: must be an address of loopback, such as %s; this etcd has no authentication", f.listen, defaultListen)
		}
		if f.dashboard != "" && portless(f.dashboard) {
			return usageError(cmd, "--dashboard %s: lacks a host or a port; write it like %s", f.dashboard, defaultDashboard)
		}
		if f.dashboard != "" && !webconfig.Loopback(f.dashboard) {
			return usageError(cmd, "--dashboard %s: must be an address of loopback; everybody may look there", f.dashboard)
		}
		if cmd.Flags().Changed("endpoints") {
			return usageError(cmd, "--endpoints: dev starts an etcd of its own; leave it out, or say by --listen where that one listens")
		}
		if f.instances < 0 || f.instances > 1000 {
			return usageError(cmd, "--instances %d: must be from 0 to 1000", f.instances)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return a.dev(ctx, &f)
	}
	return cmd
}

// portless reports whether an address is not of the form HOST:PORT.
func portless(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err != nil || port == ""
}

// dataFolder returns where etcd's data goes, and what removes it afterwards.
func (f *devFlags) dataFolder() (dir, said string, clean func() error, err error) {
	if f.data != "" {
		return f.data, "kept in " + f.data, func() error { return nil }, os.MkdirAll(f.data, 0o700)
	}
	where := "memory"
	if dir, err = os.MkdirTemp("/dev/shm", "quotient-dev-"); err != nil { // where Linux keeps files in memory
		where = "a temporary folder"
		dir, err = os.MkdirTemp("", "quotient-dev-")
	}
	return dir, "in " + where + ", and gone at the end", func() error { return os.RemoveAll(dir) }, err
}

// started returns what start returns, or ctx's error if ctx ends before. An etcd that starts cannot be told to give up: then
// it ends with the process.
func started(ctx context.Context, start func() (*embedded.Cluster, error)) (*embedded.Cluster, error) {
	done := make(chan struct{})
	var c *embedded.Cluster
	var failed error
	go func() {
		defer close(done)
		c, failed = start()
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done:
		return c, failed
	}
}

func (a *app) dev(ctx context.Context, f *devFlags) (err error) {
	// The dashboard's port first: a start that fails should leave nothing behind.
	var page net.Listener
	if f.dashboard != "" {
		if page, err = listenOn(f.dashboard, "--dashboard"); err != nil {
			return err
		}
		defer page.Close()
	}
	port, err := listenOn(f.listen, "--listen") // at once; etcd itself tries for long
	if err != nil {
		return err
	}
	_ = port.Close() // etcd listens there next
	dir, where, clean, err := f.dataFolder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	cluster, err := started(ctx, func() (*embedded.Cluster, error) {
		return embedded.Start(embedded.Options{Slow: true, Dir: dir, Listen: f.listen})
	})
	switch {
	case errors.Is(err, embedded.ErrInUse):
		return fmt.Errorf("%s is in use by another etcd; --data takes another folder", f.data)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted before the etcd has started")
	case err != nil:
		return fmt.Errorf("etcd at %s did not start: %w; --listen takes another address", f.listen, err)
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	client, err := cluster.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	limits, err := a.sample(ctx, client)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	services, ctx := errgroup.WithContext(ctx)
	defer func() { stop(); err = errors.Join(err, services.Wait()) }()
	if err := sampleFleet(ctx, a, client, f, services); err != nil {
		return err
	}
	if page != nil {
		p := &dashboardFlags{listen: f.dashboard}
		server, err := a.newDashboard(client, p)
		if err != nil {
			return err
		}
		a.dashboardSays(page.Addr(), p)
		services.Go(func() error { return server.Serve(ctx, page, "") })
	}
	a.devSays(cluster.Endpoints(), where, limits, f)
	<-ctx.Done()
	fmt.Fprintln(a.stdout, "stopping")
	return nil
}

// sample sets the sample provider's policy, unless the data has one, and returns
// its limits.
func (a *app) sample(ctx context.Context, client *clientv3.Client) (string, error) {
	operator, err := a.admin(client, a.etcd.CommandTimeout)
	if err != nil {
		return "", err
	}
	s, err := operator.Get(ctx, sampleProvider)
	if errors.Is(err, admin.ErrNotFound) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: sampleLimit, Window: time.Second}}, Reason: "sample of quota-admin dev"}
		s, err = operator.PutIf(ctx, sampleProvider, policy, 0)
	}
	return quota.FormatLimits(s.Policy.Limits), err
}

func sampleFleet(ctx context.Context, a *app, client *clientv3.Client, f *devFlags, group *errgroup.Group) error {
	quiet := slog.New(slog.DiscardHandler)
	for i := range f.instances {
		s, err := coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("demo-%d", i+1), Prefix: a.etcd.Prefix, Logger: quiet})
		if err != nil {
			return err
		}
		l, err := consumer.Open(ctx, s, sampleProvider, consumer.Options{Logger: quiet})
		if err != nil {
			return errors.Join(err, s.Close())
		}
		group.Go(func() error {
			use(ctx, l, f.instances)
			_ = s.Close() // the etcd ends too
			return nil
		})
	}
	return nil
}

// use asks for 1.2 times the instance's part of the sample limit, at intervals
// that vary.
func use(ctx context.Context, l *consumer.Limiter, instances int) {
	const perSecond = 1.2 * sampleLimit
	owed := 0.0
	for {
		pause := rand.N(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for owed += perSecond / float64(instances) * pause.Seconds(); owed >= 1; owed-- {
			l.TryAcquire()
		}
	}
}

func (a *app) devSays(endpoints []string, where, limits string, f *devFlags) {
	endpoint, export, prefix := strings.Join(endpoints, ","), "", ""
	if f.listen != defaultListen || a.env("QUOTIENT_ENDPOINTS") != "" { // else programs look there by themselves
		export = "  export QUOTIENT_ENDPOINTS=" + endpoint + "\n"
	}
	if a.etcd.Prefix != keys.DefaultPrefix {
		prefix = " --prefix " + a.etcd.Prefix
	}
	fmt.Fprintf(a.stdout, `etcd is at %[1]s, its data is %[2]s
provider %[3]s has %[4]s, and %[5]s use it

In another terminal:

%[7]s  go run ./cmd/quota-admin top %[3]s%[6]s
  go run ./cmd/quota-admin set %[3]s 500/s --wait%[6]s
  go run ./cmd/loadgen --endpoints %[1]s --limit 20000/s --instances 24%[6]s

Ctrl-C ends it.
`, endpoint, where, sampleProvider, limits, format.Count(f.instances, "instance"), prefix, export)
}
