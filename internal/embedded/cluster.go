// Package embedded runs a real etcd, of one member or several, on loopback ports
// that the system chooses: for tests, and for the commands' embedded default.
// The members are in this process, or each in a process of its own, which can be
// killed and paused. The data lies in a temporary folder and is gone after
// Close; nothing is synced to disk.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Options of a cluster. The zero value is one member with a fast clock.
type Options struct {
	// Members is 1 or more; default 1.
	Members int
	// Slow keeps etcd's own timers (heartbeats of 100 ms, elections after 1 s)
	// in place of faster ones.
	Slow bool
	// Fsync has every write reach the disk before it counts, as in production. A released
	// etcd (QUOTIENT_TEST_ETCD) never does that here.
	Fsync bool
	// Processes gives every member a process of its own: this very program, which
	// must call RunIfMember first of all.
	Processes bool
	// OnExit is called when a member's process has ended though nobody stopped
	// it, on a goroutine of its own; default: nobody is told.
	OnExit func(member int, err error)
	// Dir is where the data goes; default a temporary folder.
	Dir string
	// Listen is the address for clients, HOST:PORT; only for one member. Default a
	// port of loopback that is free.
	Listen string
	// TLS makes clients connect by TLS, and prove who they are by a certificate;
	// the Client method does not serve then.
	TLS *TLS
	// Gateway has members serve etcd's JSON too, as etcd does by default. Without it a member that is
	// terminated often ends at once.
	Gateway bool
	// Retention is how long superseded revisions are kept; default 5 minutes.
	Retention time.Duration
}

// TLS are the files of a cluster that demands certificates.
type TLS struct {
	Cert, Key string // of the server
	CA        string // that signs the clients' certificates
}

const startTimeout = 2 * time.Minute

// Cluster is a running etcd.
type Cluster struct {
	o       Options
	dir     string
	own     bool // dir is ours to remove
	members []*member
}

type member struct {
	memberConfig
	runs runner // nil while it does not
}

// runner is a member that runs: in this process, or in one of its own.
type runner interface {
	ready() error // returns when it serves
	stop()        // in good order
	// terminate has it end as etcd does by itself, which takes longer. It may be stopped meanwhile.
	terminate() (ended <-chan struct{})
}

// Start starts a cluster and returns when every member serves.
func Start(o Options) (*Cluster, error) {
	o.Members = max(1, o.Members)
	if o.OnExit == nil {
		o.OnExit = func(int, error) {}
	}
	o.Retention = cmp.Or(o.Retention, 5*time.Minute)
	c := &Cluster{o: o, dir: o.Dir}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "quotient-etcd-")
		if err != nil {
			return nil, fmt.Errorf("etcdtest: %w", err)
		}
		c.dir, c.own = dir, true
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("etcdtest: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start() error {
	ports, err := FreeAddresses(3 * c.o.Members)
	if err != nil {
		return err
	}
	scheme := "http"
	if c.o.TLS != nil {
		scheme = "https"
	}
	var all []string
	for i := range c.o.Members {
		m := memberConfig{Name: fmt.Sprintf("m%d", i), Slow: c.o.Slow, Fsync: c.o.Fsync, Gateway: c.o.Gateway, Retention: c.o.Retention, TLS: c.o.TLS,
			Peer: url.URL{Scheme: "http", Host: ports[3*i]}, Client: url.URL{Scheme: scheme, Host: ports[3*i+1]}, Metrics: url.URL{Scheme: "http", Host: ports[3*i+2]}}
		m.Dir = filepath.Join(c.dir, m.Name)
		all = append(all, m.Name+"="+m.Peer.String())
		c.members = append(c.members, &member{memberConfig: m})
	}
	for _, m := range c.members {
		m.Cluster = strings.Join(all, ",")
		if inUse(m.Dir) {
			return ErrInUse
		}
	}
	if c.o.Listen != "" {
		if c.o.Members > 1 {
			return errors.New("one address for clients, and several members")
		}
		c.members[0].Client.Host = c.o.Listen
	}
	return c.launch(embed.ClusterStateFlagNew)
}

// ErrInUse is the error of a start on data that an etcd has open.
var ErrInUse = errors.New("the data is in use by another etcd")

// inUse reports whether an etcd has the data in a folder open. Etcd locks its database, and one that starts would wait for
// this lock without end and without a word.
func inUse(dir string) bool {
	// A timeout that is over at once: the lock is tried once.
	db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: 1})
	if err == nil {
		_ = db.Close() // nothing was written
	}
	return errors.Is(err, bbolterrors.ErrTimeout) // etcd itself tells of other errors
}

// launch starts the members, or all that do not run, and returns when they serve.
func (c *Cluster) launch(state string, members ...int) error {
	if len(members) == 0 {
		for i := range c.members {
			if !c.Running(i) {
				members = append(members, i)
			}
		}
	}
	for _, i := range members {
		if err := c.run(i, state); err != nil {
			return err
		}
	}
	for _, i := range members {
		if err := c.members[i].runs.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) run(i int, state string) (err error) {
	m := c.members[i]
	m.State = state
	onExit := func(err error) { c.o.OnExit(i, err) }
	switch binary := os.Getenv(binaryVariable); {
	case binary != "":
		m.runs, err = startBinary(binary, m.memberConfig, onExit)
	case c.o.Processes:
		m.runs, err = startProcess(m.memberConfig, onExit)
	default:
		m.runs, err = m.start()
	}
	if err != nil {
		m.runs = nil
	}
	return err
}

// Endpoints returns the addresses for clients of all members, or of those given by
// number.
func (c *Cluster) Endpoints(members ...int) (endpoints []string) {
	for i, m := range c.members {
		if len(members) == 0 || slices.Contains(members, i) {
			endpoints = append(endpoints, m.Client.String())
		}
	}
	return endpoints
}

// soon lets a client look for a member that is back ten times as often as usual.
var soon = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: 5 * time.Second,
})

// Client returns a new client of all members, or of those given by number. The
// caller closes it.
func (c *Cluster) Client(members ...int) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(members...), DialTimeout: 5 * time.Second, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{soon},
	})
}

// Stop stops a member in good order: a leader hands its leadership over.
func (c *Cluster) Stop(i int) {
	if m := c.members[i]; m.runs != nil {
		m.runs.stop()
		m.runs = nil
	}
}

// Terminate asks a member to end as etcd does on SIGTERM: it takes no new requests, and waits
// up to 7 s for the streams that are open. The channel is closed when it has ended. It counts
// as running until Stop, which ends these streams, or Kill.
func (c *Cluster) Terminate(i int) (ended <-chan struct{}) { return c.members[i].runs.terminate() }

// process does something with a member's process.
func (c *Cluster) process(i int, do func(*process) error) error {
	if p, ok := c.members[i].runs.(*process); ok {
		return do(p)
	}
	return fmt.Errorf("etcdtest: member %d is no running process", i)
}

// Kill ends a member's process without warning (SIGKILL). Only for clusters with
// Options.Processes, as are Pause and Resume.
func (c *Cluster) Kill(i int) error {
	return c.process(i, func(p *process) error {
		p.Kill()
		c.members[i].runs = nil
		return nil
	})
}

// Pause stops a member's process where it stands (SIGSTOP): its connections stay
// open, and nothing is answered.
func (c *Cluster) Pause(i int) error { return c.process(i, (*process).Pause) }

// Resume lets a paused member go on.
func (c *Cluster) Resume(i int) error { return c.process(i, (*process).Resume) }

// Restart starts stopped members on their old data, all of them if none is given, and
// returns when they serve.
func (c *Cluster) Restart(members ...int) error {
	return c.launch(embed.ClusterStateFlagExisting, members...)
}

// Running reports whether a member was started and not stopped since; one that
// is paused runs.
func (c *Cluster) Running(i int) bool {
	return c.members[i].runs != nil
}

// Leader returns the number of the leading member, or -1 if none is known.
func (c *Cluster) Leader(ctx context.Context) int {
	client, err := c.Client()
	if err != nil {
		return -1
	}
	defer client.Close()
	for i, m := range c.members {
		if !c.Running(i) {
			continue
		}
		asked, done := context.WithTimeout(ctx, time.Second)
		s, err := client.Status(asked, m.Client.String())
		done()
		if err == nil && s.Leader == s.Header.MemberId {
			return i
		}
	}
	return -1
}

// Close stops all members and removes the data. A second Close does nothing.
func (c *Cluster) Close() error {
	for i := range c.members {
		c.Stop(i)
	}
	if c.own {
		return os.RemoveAll(c.dir)
	}
	return nil
}
