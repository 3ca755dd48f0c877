//go:build e2e && linux

package faults

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// memberConfig is one etcd member.
type memberConfig struct {
	Name, Address, Dir string
	Cluster            string // name=url,name=url
	Existing           bool
}

// beMember is an etcd server with etcd's own timers, synced to disk. SIGTERM and the end of orders
// end it as etcd does: it takes no new requests, and waits for the streams that are open.
func beMember(m memberConfig, gone over, tell func(told)) error {
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	if m.Existing {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	peer, client := url.URL{Scheme: "http", Host: m.Address + ":2380"}, url.URL{Scheme: "http", Host: m.Address + ":2379"}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
		tell(told{Ready: true})
	case <-gone:
		return errors.New("ended before it was ready")
	case err := <-server.Err():
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-gone:
		return nil
	case <-asked:
		return nil
	case err := <-server.Err():
		return err
	}
}

// cluster is etcd's members, each on a host and a disk of its own.
type cluster struct {
	t       *testing.T
	hosts   []*host
	dirs    []string // mount points
	members []*process
	logs    io.Writer
}

// newCluster starts a cluster on hosts from an address on.
func newCluster(t *testing.T, f *fabric, logs io.Writer, first byte, members int) *cluster {
	t.Helper()
	c := &cluster{t: t, logs: logs, members: make([]*process, members)}
	for i := range members {
		c.hosts = append(c.hosts, newHost(t, f, fmt.Sprintf("etcd%d", int(first)+i), first+byte(i)))
		c.hosts[i].owner = t // a member that a scenario restarts outlives it
		c.dirs = append(c.dirs, newDisk(t))
	}
	for i := range members {
		c.launch(i, false)
	}
	c.awaitReady(c.all()...)
	return c
}

// all are the numbers of the members.
func (c *cluster) all() (which []int) {
	for i := range c.members {
		which = append(which, i)
	}
	return which
}

// terminate sends members a SIGTERM.
func (c *cluster) terminate(which ...int) {
	for _, i := range which {
		if err := c.members[i].Terminate(); err != nil {
			c.t.Fatalf("member %d: %v", i+1, err)
		}
	}
}

// ended waits until members have ended.
func (c *cluster) ended(which ...int) {
	for _, i := range which {
		select {
		case <-c.members[i].Gone:
		case <-time.After(30 * time.Second):
			c.t.Fatalf("member %d has not ended 30 s after SIGTERM", i+1)
		}
	}
}

// newDisk is a small file system of its own, which can be frozen.
func newDisk(t *testing.T) string {
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	command(t, "truncate", "-s", "640M", image)
	command(t, "mkfs.ext4", "-q", image)
	command(t, "mkdir", mount)
	command(t, "mount", "-o", "loop", image, mount)
	t.Cleanup(func() { command(t, "umount", mount) })
	return mount
}

func (c *cluster) launch(i int, existing bool) {
	var all []string
	for k, h := range c.hosts {
		all = append(all, fmt.Sprintf("m%d=http://%s:2380", k+1, h.ip()))
	}
	c.members[i] = c.hosts[i].run("member", memberConfig{
		Name: fmt.Sprintf("m%d", i+1), Address: c.hosts[i].ip(), Dir: filepath.Join(c.dirs[i], "data"),
		Cluster: strings.Join(all, ","), Existing: existing,
	}, c.logs)
}

func (c *cluster) awaitReady(which ...int) {
	c.t.Helper()
	for _, i := range which {
		if err := c.members[i].await(30 * time.Second); err != nil {
			c.t.Fatalf("member %d: %v", i+1, err)
		}
	}
}

// restart starts members anew that have ended.
func (c *cluster) restart(which ...int) {
	for _, i := range which {
		c.launch(i, true)
	}
	c.awaitReady(which...)
}

func (c *cluster) endpoints() []string {
	var all []string
	for _, h := range c.hosts {
		all = append(all, h.ip()+":2379")
	}
	return all
}

// leader returns which member leads.
func (c *cluster) leader(client *clientv3.Client) int {
	c.t.Helper()
	for range 100 {
		for i, e := range c.endpoints() {
			r, err := client.Status(c.t.Context(), e)
			if err == nil && r.Leader != 0 && r.Leader == r.Header.MemberId {
				return i
			}
		}
		wait(50 * time.Millisecond)
	}
	c.t.Fatal("no leader")
	return 0
}

// followers returns the others.
func (c *cluster) followers(leader int) (others []int) {
	for i := range c.members {
		if i != leader {
			others = append(others, i)
		}
	}
	return others
}

// backup copies the data of all members, which must not run.
func (c *cluster) backup() {
	for _, dir := range c.dirs {
		command(c.t, "rm", "-rf", filepath.Join(dir, "backup"))
		command(c.t, "cp", "-a", filepath.Join(dir, "data"), filepath.Join(dir, "backup"))
	}
}

// restore puts the backup in place of the data.
func (c *cluster) restore() {
	for _, dir := range c.dirs {
		command(c.t, "rm", "-rf", filepath.Join(dir, "data"))
		command(c.t, "cp", "-a", filepath.Join(dir, "backup"), filepath.Join(dir, "data"))
	}
}
