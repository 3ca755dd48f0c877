package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/etcdflags"
	"github.com/quotient-limiter/quotient/quota"
)

// config is what the flags say, checked.
type config struct {
	args    []string // as they were given, for the children
	consume bool     // one consumer alone

	// The parts. Empty brokers, a nil etcd and an empty providerURL are embedded.
	brokers     []string
	brokersTLS  brokersTLS
	etcd        *etcdflags.Flags
	providerURL string
	listen      string // of the provider's page

	// What is consumed, and how.
	topic, letters, group, provider string
	name                            string
	workers, batch                  int
	margin                          time.Duration

	// The demonstration.
	records, partitions, members int
	limit                        quota.Limit
	guard, latency, timeout      time.Duration
	demand                       float64
	poison                       int // every so many-th record, 0 for none
	calm                         bool
	extra                        []event // of tests
}

// usageError is a command line that cannot be followed.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// parse reads the command line. It returns pflag.ErrHelp where help was asked
// for and given.
func parse(args []string, env func(string) string, help io.Writer) (*config, error) {
	c := &config{args: args}
	var limit string
	own := pflag.NewFlagSet("kafka-consumer", pflag.ContinueOnError)
	own.SortFlags = false
	own.BoolVar(&c.consume, "consume", false, "be one consumer until SIGTERM, instead of the demonstration")
	own.StringSliceVar(&c.brokers, "brokers", nil, "Kafka brokers, `HOST:PORT,...`; default an embedded fake")
	c.brokersTLS.register(own)
	own.StringVar(&c.topic, "topic", "", "what is consumed; default, for the demonstration, a new topic")
	own.StringVar(&c.letters, "dead-letters", "", "topic for records that the provider rejects; default the topic's name with .dead")
	own.StringVar(&c.group, "group", "kafka-consumer", "consumer group")
	own.StringVar(&c.provider, "provider", "", "name of the provider's policy in etcd; default, for the demonstration, a new one")
	own.StringVar(&c.providerURL, "provider-url", "", "where records are posted to; the demonstration counts the calls on their way; default an embedded provider")
	own.StringVar(&c.name, "name", "", "what operators call this instance; default the host's name")
	own.IntVar(&c.workers, "workers", 32, "calls at once, in each consumer")
	own.IntVar(&c.batch, "batch", 1, "records in a call; more than 1 only with the embedded provider")
	own.DurationVar(&c.margin, "margin", 0, "a permit that ends sooner is not used, so that the call arrives in time; default --guard")

	demo := pflag.NewFlagSet("demonstration", pflag.ContinueOnError)
	demo.SortFlags = false
	demo.IntVar(&c.records, "records", 40_000, "records to be produced")
	demo.StringVar(&limit, "limit", "2000/s", "the provider's limit, as `PERMITS/WINDOW`")
	demo.DurationVar(&c.guard, "guard", 200*time.Millisecond, "no permits so close to a window's edge, so that the provider's clock sees none too many")
	demo.Float64Var(&c.demand, "demand", 1.25, "records produced, as a multiple of the limit")
	demo.IntVar(&c.members, "members", 3, "consumers at the start")
	demo.IntVar(&c.partitions, "partitions", 12, "of the new topic")
	demo.DurationVar(&c.latency, "latency", 5*time.Millisecond, "of the embedded provider")
	demo.IntVar(&c.poison, "poison", 5000, "every so many-th record is rejected by the provider; 0 for none")
	demo.BoolVar(&c.calm, "calm", false, "nobody is killed or added, and the provider never asks for a pause")
	demo.DurationVar(&c.timeout, "timeout", 5*time.Minute, "give up after so long")
	demo.StringVar(&c.listen, "listen", "127.0.0.1:0", "where the provider listens, and shows its page of counts")

	connection := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	connection.SortFlags = false
	etcd := etcdflags.Register(connection)
	etcd.Env = env

	set := pflag.NewFlagSet("kafka-consumer", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	for _, s := range []*pflag.FlagSet{own, demo, connection} {
		set.AddFlagSet(s)
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprintf(help, "kafka-consumer shows a Kafka consumer that obeys a provider's limit.\n\n%s\nOf the demonstration:\n%s\nOf etcd, which is embedded unless --endpoints is given:\n%s",
				own.FlagUsages(), demo.FlagUsages(), connection.FlagUsages())
			return nil, err
		}
		return nil, usagef("%v; see --help", err)
	}
	if set.NArg() > 0 {
		return nil, usagef("argument %q is not a flag; see --help", set.Arg(0))
	}
	if c.consume || set.Changed("endpoints") || env("QUOTIENT_ENDPOINTS") != "" {
		if err := etcd.Resolve(); err != nil {
			return nil, err
		}
		c.etcd = etcd
	} else if name := firstChanged(set, connection); name != "" {
		return nil, usagef("--%s is for an etcd of yours: give --endpoints too", name)
	}
	var err error
	if c.limit, err = quota.ParseLimit(limit); err != nil {
		return nil, usagef("--limit: %v", err)
	}
	if !set.Changed("margin") {
		c.margin = c.guard
	}
	return c, c.check()
}

// firstChanged returns a flag of those that was given, if one was.
func firstChanged(set, those *pflag.FlagSet) (name string) {
	set.Visit(func(f *pflag.Flag) {
		if name == "" && those.Lookup(f.Name) != nil {
			name = f.Name
		}
	})
	return name
}

// check finds what does not fit together.
func (c *config) check() error {
	if c.consume {
		for _, f := range []struct{ name, value string }{
			{"brokers", strings.Join(c.brokers, ",")},
			{"topic", c.topic},
			{"provider", c.provider},
			{"provider-url", c.providerURL},
		} {
			if f.value == "" {
				return usagef("--consume needs --%s", f.name)
			}
		}
	}
	if c.topic != "" && c.letters == "" {
		c.letters = c.topic + ".dead"
	}
	if c.providerURL != "" {
		u, err := url.Parse(c.providerURL)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
			return usagef("--provider-url %q: want http://HOST:PORT/PATH or https://...", c.providerURL)
		}
		if c.batch > 1 {
			return usagef("--batch %d: only the embedded provider takes several records in a call", c.batch)
		}
	}
	for _, f := range []struct {
		name            string
		value, from, to int
	}{
		{"records", c.records, 1, 100_000_000},
		{"members", c.members, 1, 100},
		{"partitions", c.partitions, 1, 1000},
		{"workers", c.workers, 1, 10_000},
		{"batch", c.batch, 1, 10_000},
		{"poison", c.poison, 0, 1 << 30},
	} {
		if f.value < f.from || f.value > f.to {
			return usagef("--%s is %d: want %d to %d", f.name, f.value, f.from, f.to)
		}
	}
	if c.demand <= 0 || c.demand > 1000 {
		return usagef("--demand is %v: want more than 0, 1000 at most", c.demand)
	}
	if c.margin < 0 || c.guard < 0 || c.latency < 0 || c.timeout <= 0 {
		return usagef("--margin, --guard and --latency cannot be negative, and --timeout must be positive")
	}
	return c.brokersTLS.check(len(c.brokers) > 0)
}
