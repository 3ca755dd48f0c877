package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// locked is a condition under the membership's lock.
func (p *membership) locked(is func() bool) func() bool {
	return func() bool { p.s.mu.Lock(); defer p.s.mu.Unlock(); return is() }
}

// begins returns how often the history has begun.
func (r *recorder) begins() int { return strings.Count(r.told().log, "reset") }

// TestAStoreThatWasPutBackAndHasGoneOn: etcd is restored from a backup from before this
// instance registered, with the same cluster ID, and goes on past every known revision.
func TestAStoreThatWasPutBackAndHasGoneOn(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	cluster, client := etcdtest.New(t, embedded.Options{Dir: dir, Processes: false})
	f := setupOn(t, client)
	f.set("p", "100/s")
	s := f.join(Options{Name: "a", TTL: time.Minute})
	restart := func(between func() error) {
		t.Helper()
		cluster.Stop(0)
		if err := between(); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Restart(0); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "etcd answers", func() bool { _, err := client.Get(t.Context(), "others"); return err == nil })
	}
	restart(func() error { return os.CopyFS(backup, os.DirFS(dir)) })
	r, _ := f.subscribe(s, "p")
	p := f.only(r)
	await.Until(t, "a proof", r.is(proved))
	p.s.mu.Lock() // nothing is taken from etcd meanwhile
	_, known, _ := p.Newest()
	restart(func() error {
		if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(dir, "m0"), os.DirFS(filepath.Join(backup, "m0")))
	})
	for i := 0; f.revision() <= known; i++ {
		f.set("p", fmt.Sprintf("%d/s", 50+i))
	}
	p.s.mu.Unlock()
	await.Until(t, "the history begins again", func() bool { return r.begins() > 1 })
	await.Until(t, "it is proved", r.is(proved))
}
