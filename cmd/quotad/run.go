package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/api"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/envoy"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// service is what quotad serves by the flags of one kind of client.
type service interface {
	// Register adds its flags.
	Register(set *pflag.FlagSet)
	// Check returns what is wrong with them.
	Check() error
	// Listen opens its listeners; nil, nil if its flags ask for none.
	Listen(h *host.Host, log *slog.Logger) (listen.Server, error)
}

// services are all that quotad can serve. Calls at an address host:port are by the files of tls.
func services(tls *listen.TLS, group *string) []service {
	return []service{&api.Flags{TLS: tls, Group: group}, &envoy.Flags{TLS: tls, Group: group}, &metrics{}}
}

const (
	// lookupTime bounds one question to etcd whether a provider exists.
	lookupTime = 2 * time.Second
	// sendingTime is for the answers under way at the end.
	sendingTime = 500 * time.Millisecond
)

// run serves until a signal asks it to end.
func (f *flags) run(ctx context.Context, log *slog.Logger, signals <-chan os.Signal) (err error) {
	f.etcd.Log = etcdlog.New(log)
	client, err := f.etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	operator, err := admin.New(client, admin.Options{Prefix: f.etcd.Prefix, Timeout: lookupTime})
	if err != nil {
		return err
	}
	session, err := coordinator.Join(ctx, client, coordinator.Options{
		Name: f.name, Prefix: f.etcd.Prefix, NTP: f.ntp, Lazy: true, Logger: log,
	})
	if err != nil {
		return usagef("%v", err) // a lazy session fails for its options only
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	h, err := host.New(ctx, session, host.Options{Known: known(operator), Keep: f.providers, Max: f.maxProviders, Idle: f.idle, Log: log})
	if err != nil {
		return err
	}
	h.Registry().MustRegister(f.certificates)
	servers, err := f.listen(h, log)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	group, ended := errgroup.WithContext(ctx)
	group.Go(func() error { f.reach(ended, operator, log); return nil })
	for _, s := range servers {
		group.Go(s.Serve)
	}
	log.Info("serving", "version", buildinfo.Version(), "etcd", f.etcd.Endpoints)
	notify(log, daemon.SdNotifyReady)
	select {
	case s := <-signals:
		notify(log, daemon.SdNotifyStopping)
		log.Info("ending", "signal", s)
		h.Drain()
		for _, s := range servers {
			_, failed := s.GiveWay() // of some providers the share is gone long before the process is
			err = errors.Join(err, failed)
		}
		err = errors.Join(err, f.leave(session, signals))
	case <-ended.Done():
	}
	sending, cancel := context.WithTimeout(context.Background(), sendingTime)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.Shutdown(sending))
	}
	return errors.Join(err, group.Wait())
}

// reach asks etcd for something and logs if it does not answer: the first call of a client
// may come much later.
func (f *flags) reach(ctx context.Context, operator *admin.Client, log *slog.Logger) {
	if _, err := operator.Get(ctx, "any"); errors.Is(err, coordinator.ErrUnreachable) {
		log.Warn("etcd does not answer", "found", f.etcd.Diagnose(ctx, err), "do", "leave quotad running: it goes on when etcd answers; --endpoints names other addresses, and quota-admin doctor says more")
	}
}

// listen opens the listeners. --socket comes last: nothing fails after it has taken the
// socket of another process.
func (f *flags) listen(h *host.Host, log *slog.Logger) (servers []listen.Server, err error) {
	for _, s := range slices.Backward(f.services) {
		server, err := s.Listen(h, log)
		if err != nil {
			for _, s := range servers {
				_ = s.Shutdown(context.Background()) // nobody has called it yet
			}
			return nil, err
		}
		if server != nil {
			servers = slices.Insert(servers, 0, server) // that of --socket ends first
		}
	}
	return servers, nil
}

// leave hands the share over. A second signal cuts that short.
func (f *flags) leave(session *coordinator.Session, signals <-chan os.Signal) error {
	leaving, cancel := context.WithTimeout(context.Background(), max(f.grace-2*sendingTime, f.grace/2))
	defer cancel()
	left := make(chan struct{})
	defer close(left)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-left:
		}
	}()
	if err := session.Shutdown(leaving); err != nil {
		return fmt.Errorf("the share was not handed over (--grace is %v, and a second signal cuts it short): others use it when the lease ends: %w", f.grace, err)
	}
	return nil
}

// known asks etcd whether a provider has a policy.
func known(operator *admin.Client) func(context.Context, string) error {
	return func(ctx context.Context, provider string) error {
		_, err := operator.Get(ctx, provider)
		if errors.Is(err, admin.ErrNotFound) {
			return host.Unknown(provider)
		}
		if err == nil {
			return nil
		}
		said := strings.TrimPrefix(etcdcall.Plain(err.Error()), "read the policy of "+provider+": ") // clients know of no package, and not of gRPC
		if errors.Is(err, coordinator.ErrPermission) {
			return host.Forbidden(provider, said)
		}
		return fmt.Errorf("%s is not open here, and whether it has a limit is not known: %s", provider, said)
	}
}

// notify tells systemd, if that has started the process.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd was not notified", "error", err)
	}
}
