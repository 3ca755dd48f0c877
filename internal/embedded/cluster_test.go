package embedded_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	os.Exit(m.Run())
}

// put writes a value, again if the leader is lost meanwhile.
func put(t *testing.T, client *clientv3.Client, value string) {
	t.Helper()
	await.Until(t, "etcd takes "+value, func() bool {
		_, err := client.Put(t.Context(), "key", value)
		return err == nil
	})
}

func TestOneMemberKeepsItsDataOverARestart(t *testing.T) {
	c, client := etcdtest.New(t, embedded.Options{})
	put(t, client, "a")
	c.Stop(0)
	if err := c.Restart(0); err != nil {
		t.Fatal(err)
	}
	if r, err := client.Get(t.Context(), "key"); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "a" {
		t.Errorf("after the restart: %v, %v", r, err)
	}
	dir := embedded.Dir(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}

func TestThreeProcessesSurviveTheirLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	c, client := etcdtest.New(t, embedded.Options{Members: 3, Processes: true})
	put(t, client, "a")
	leader := c.Leader(t.Context())
	if leader < 0 {
		t.Fatal("there is no leader")
	}
	if err := c.Kill(leader); err != nil {
		t.Fatal(err)
	}
	put(t, client, "b") // without the old leader
	if err := c.Restart(leader); err != nil {
		t.Error(err)
	}
}

// A member that ends by itself is told of; one that is stopped, killed or closed,
// even while it is paused, is not.
func TestWhoEndsUnasked(t *testing.T) {
	told := make(chan int, 10)
	c, _ := etcdtest.New(t, embedded.Options{Members: 3, Processes: true, OnExit: func(i int, _ error) { told <- i }})
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	stranger(t, embedded.ProcessName(c, 1))
	if i := <-told; i != 1 {
		t.Errorf("told of member %d, want 1", i)
	}
	if err := c.Pause(2); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if len(told) > 0 {
		t.Errorf("told of member %d, which was closed", <-told)
	}
}

// stranger kills a process that a test did not ask to end.
func stranger(t *testing.T, name string) {
	t.Helper()
	pid, err := strconv.Atoi(name[strings.LastIndexByte(name, ' ')+1:])
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSupersededRevisionsAreCompactedAway(t *testing.T) {
	_, client := etcdtest.New(t, embedded.Options{Retention: time.Second})
	put(t, client, "a")
	first, err := client.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the first revision is gone", func() bool {
		put(t, client, "b") // it may have to see a change to have something to do
		_, err := client.Get(t.Context(), "key", clientv3.WithRev(first.Header.Revision))
		return errors.Is(err, rpctypes.ErrCompacted)
	})
}
