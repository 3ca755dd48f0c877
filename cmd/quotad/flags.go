package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/quota"
)

// flags are the command line.
type flags struct {
	providers    []string
	maxProviders int
	idle         time.Duration
	name         string
	ntp          []string
	grace        time.Duration
	probe        string
	services     []service
	tls          listen.TLS
	group        string // that may use the sockets
	socket       string // for probe: of one of services
	etcd         *etcdflags.Flags
	certificates *certificates
}

// usageError is a command line that cannot be followed.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Bounds of the flags.
const (
	maxMaxProviders = 10_000
	minIdle         = 2 * time.Minute // more than any window of a permit
	maxGrace        = time.Hour
)

// parse reads the command line. It returns pflag.ErrHelp where help or the version was
// asked for and given; every other error is a usageError or an *etcdflags.UsageError.
func parse(args []string, env func(string) string, help io.Writer) (*flags, error) {
	f := &flags{}
	f.services = services(&f.tls, &f.group)
	var groups commandline.Groups
	groups.Add("Programs of this host", func(set *pflag.FlagSet) {
		f.services[0].Register(set)
		set.StringVar(&f.group, "group", "", "`group` that may use the sockets, a name or a number; default: that of quotad")
	})
	groups.Add("Envoy", f.services[1].Register)
	groups.Add("Metrics", f.services[2].Register)
	groups.Add("Certificates, for calls at an address host:port", f.tls.Register)
	groups.Add("Providers", func(set *pflag.FlagSet) {
		set.StringSliceVar(&f.providers, "provider", nil, "`names` of providers, separated by commas: open them at the start, and keep them; others open at their first call")
		set.IntVar(&f.maxProviders, "max-providers", 100, "how many providers may be open at a time")
		set.DurationVar(&f.idle, "idle", 5*time.Minute, "time without a call after which a provider that is not in --provider is closed")
	})
	groups.Add("This instance", func(set *pflag.FlagSet) {
		set.StringVar(&f.name, "name", "", "`name` that operators see; default: the host's")
		commandline.Gone(set, "state-dir", "leave it out; to restart without a gap, start the new quotad beside the old one (docs/quotad.md, Stop and restart)")
		set.StringSliceVar(&f.ntp, "ntp", nil, "NTP `servers` by which the clock is measured, host or host:port, separated by commas")
		set.DurationVar(&f.grace, "grace", 25*time.Second, "time to hand the share over after SIGTERM; if it exceeds the longest window of a limit, no permit is lost")
	})
	groups.Add("etcd", func(set *pflag.FlagSet) { f.etcd = etcdflags.Register(set) })
	f.etcd.Env = env
	var version *bool
	groups.Add("In place of serving", func(set *pflag.FlagSet) {
		set.StringVar(&f.probe, "probe", "", "`healthz|readyz`: ask the quotad at --socket whether it answers (healthz), or whether it has its share of each --provider, though that may be used up (readyz); exit status 0 if so, else 1")
		version = set.Bool("version", false, "print the version")
	})
	set := groups.Set("quotad")
	if asked, err := commandline.Complete("quotad", set, args, help); asked {
		if err != nil {
			return nil, usagef("%v; see quotad --help", err)
		}
		return nil, pflag.ErrHelp
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			printHelp(help, groups.Usages())
			return nil, err
		}
		return nil, usagef("%s; see quotad --help", commandline.Wrong(set, err))
	}
	if *version {
		fmt.Fprintln(help, "quotad "+buildinfo.Version())
		return nil, pflag.ErrHelp
	}
	if set.NArg() > 0 {
		return nil, usagef("argument %q is not a flag; see quotad --help", set.Arg(0))
	}
	f.socket = set.Lookup("socket").Value.String()
	if err := f.check(); err != nil {
		return nil, err
	}
	err := f.etcd.Resolve()
	f.certificates = newCertificates(set)
	return f, err
}

func (f *flags) check() error {
	slices.Sort(f.providers)
	f.providers = slices.Compact(f.providers)
	for _, p := range f.providers {
		if err := quota.ValidateProvider(p); err != nil {
			return usagef("--provider: %v", err)
		}
	}
	switch {
	case f.maxProviders < 1 || f.maxProviders > maxMaxProviders:
		return usagef("--max-providers %d: must be from 1 to %d", f.maxProviders, maxMaxProviders)
	case len(f.providers) > f.maxProviders:
		return usagef("--provider: %d providers are more than --max-providers %d", len(f.providers), f.maxProviders)
	case f.idle < minIdle:
		return usagef("--idle %v: must be at least %v", f.idle, minIdle)
	case f.probe != "" && f.probe != "healthz" && f.probe != "readyz":
		return usagef("--probe %q: must be healthz or readyz", f.probe)
	case f.grace <= 0 || f.grace > maxGrace:
		return usagef("--grace %v: must be positive and at most %v", f.grace, maxGrace)
	case f.probe != "" && f.socket == "":
		return usagef("--probe %s: it asks at sockets only, and --socket is empty: give its path, or ask for /%[1]s at the address of --listen, with a program's certificate", f.probe)
	case f.probe != "":
		return nil // it serves nothing
	}
	if err := f.tls.Check(); err != nil {
		return usagef("%v", err)
	}
	for _, s := range f.services {
		if err := s.Check(); err != nil {
			return usagef("%v", err)
		}
	}
	return nil
}

func printHelp(w io.Writer, flags string) {
	fmt.Fprint(w, `Quotad shares limits among all processes of a host. A provider is an API that limits
you, by the name that quota-admin set gave it. Quotad takes this host's share of each
limit, and gives local processes a permit for each call, over HTTP on a Unix socket.

Usage: quotad [flags]
`, flags, `
SIGTERM hands the share over to the other instances, and ends. To restart without a
gap, start the new quotad beside the old one, with the same --socket; then end that.

quotad completion bash|zsh|fish|powershell prints a script that completes flags.

Exit status: 0 it ended as asked, 1 it failed, 2 bad usage.
`)
}
