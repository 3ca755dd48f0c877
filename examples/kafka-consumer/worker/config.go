package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
)

// Defaults of a Config.
const (
	DefaultWorkers          = 32
	DefaultAttempts         = 5
	DefaultMaxBacklog       = 1000
	DefaultMaxPoll          = 500
	DefaultCallTimeout      = 10 * time.Second
	DefaultRebalanceTimeout = time.Minute
	DefaultSessionTimeout   = 45 * time.Second
	DefaultCommitInterval   = time.Second
)

// Config says what a Member consumes and how.
type Config struct {
	// Kafka are options of the client: brokers, TLS, SASL, balancers. Those that
	// make it a member of the group are New's.
	Kafka []kgo.Opt
	// Group is the consumer group, Topic what it consumes.
	Group, Topic string
	// DeadLetters is the topic for records that the provider rejects. It must
	// exist.
	DeadLetters string

	// Limiter gives the permits; the caller opens and closes it.
	Limiter *consumer.Limiter
	// Call makes the calls.
	Call Call
	// Workers is how many calls are under way, or wait for permits, at most. It
	// takes the rate times the provider's latency, and some more: 1000 calls a
	// second at 20 ms keep 20 workers busy.
	Workers int
	// Batch is how many records of a partition one call may carry; default 1.
	Batch int
	// Ordered keeps the order of each partition: one record at a time, and none
	// after it until it is finished. It needs Batch 1.
	Ordered bool
	// Attempts is after how many rejections a record goes to the dead letters.
	Attempts int

	// MaxBacklog is the number of unfinished records at which a partition's
	// fetching pauses, until half are finished.
	MaxBacklog int
	// MaxPoll is how many records one poll returns at most. A backlog exceeds
	// MaxBacklog by less than that.
	MaxPoll int
	// CallTimeout bounds a call, and the writing of a dead letter. A rebalance
	// waits for the calls under way, so three of it must fit into
	// RebalanceTimeout.
	CallTimeout time.Duration
	// Margin is the time that a call may need to reach the provider: a permit
	// whose window ends sooner is not used. Default 0.
	Margin time.Duration
	// RebalanceTimeout is how long the group waits for this member in a
	// rebalance, SessionTimeout after how long of silence it is taken for dead.
	RebalanceTimeout, SessionTimeout time.Duration
	// CommitInterval is the time between two commits of what is finished. It
	// bounds what a crash makes others do again.
	CommitInterval time.Duration
	// Logger takes what goes wrong; default slog.Default().
	Logger *slog.Logger
}

func withDefaults(c Config) Config {
	c.Workers = or(c.Workers, DefaultWorkers)
	c.Batch = or(c.Batch, 1)
	c.Attempts = or(c.Attempts, DefaultAttempts)
	c.MaxBacklog = or(c.MaxBacklog, DefaultMaxBacklog)
	c.MaxPoll = or(c.MaxPoll, DefaultMaxPoll)
	c.CallTimeout = or(c.CallTimeout, DefaultCallTimeout)
	c.RebalanceTimeout = or(c.RebalanceTimeout, DefaultRebalanceTimeout)
	c.SessionTimeout = or(c.SessionTimeout, DefaultSessionTimeout)
	c.CommitInterval = or(c.CommitInterval, DefaultCommitInterval)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// validate checks a configuration with its defaults.
func (c *Config) validate() error {
	var errs []error
	missing := func(is bool, what string) {
		if is {
			errs = append(errs, fmt.Errorf("worker: %s is missing", what))
		}
	}
	missing(c.Group == "", "Config.Group")
	missing(c.Topic == "", "Config.Topic")
	missing(c.DeadLetters == "", "Config.DeadLetters")
	missing(c.Limiter == nil, "Config.Limiter")
	missing(c.Call == nil, "Config.Call")
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Workers", c.Workers},
		{"Batch", c.Batch},
		{"Attempts", c.Attempts},
		{"MaxBacklog", c.MaxBacklog},
		{"MaxPoll", c.MaxPoll},
	} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("worker: Config.%s is %d: it must be at least 1", f.name, f.value))
		}
	}
	if c.CallTimeout < 0 || c.Margin < 0 {
		errs = append(errs, fmt.Errorf("worker: Config.CallTimeout is %v and Margin %v: neither can be negative", c.CallTimeout, c.Margin))
	}
	if c.Ordered && c.Batch > 1 {
		errs = append(errs, fmt.Errorf("worker: Config.Ordered needs Batch 1, and Batch is %d", c.Batch))
	}
	if c.RebalanceTimeout < 3*c.CallTimeout {
		errs = append(errs, fmt.Errorf("worker: Config.RebalanceTimeout is %v: a call, a dead letter and a commit must fit into it, which is three times CallTimeout (%v)",
			c.RebalanceTimeout, c.CallTimeout))
	}
	return errors.Join(errs...)
}
