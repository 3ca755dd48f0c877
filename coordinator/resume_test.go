//go:build linux

package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/view"
)

// crash ends a session as a crash of its process would, but for the lease's renewal:
// nothing is sent or cleared, and the kernel releases the locks.
func (f *fixture) crash(s *Session) {
	f.t.Helper()
	for _, p := range s.all() {
		if p.state != nil {
			if err := p.state.file.Close(); err != nil {
				f.t.Error(err)
			}
		}
		s.step(closing{p})
	}
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
}

// checkpoint returns what the one state file in a directory holds; nil if it is void.
func checkpoint(t *testing.T, dir string) *view.Checkpoint {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.state"))
	if err != nil || len(all) != 1 {
		t.Fatalf("state files %q, %v", all, err)
	}
	file, err := os.OpenFile(all[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	origin, err := originOf(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if at, err := file.Stat(); err != nil || at.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", at.Mode(), err)
	}
	now, err := hostClock()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) == 0 {
		return nil
	}
	c, err := view.ReadCheckpoint(text, origin, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAProcessContinuesTheOneBefore: the next process on the host is the same
// instance, and has held the view since the one before did. So it is where answers to its
// registration are lost.
func TestAProcessContinuesTheOneBefore(t *testing.T) {
	for lost := range 2 {
		t.Run(fmt.Sprint("answers lost: ", lost), func(t *testing.T) { continues(t, lost) })
	}
}

func continues(t *testing.T, lost int) {
	f, dir := setup(t), t.TempDir()
	f.set("p", "10/s")
	s := f.join(Options{Name: "a", StateDir: dir})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a's first proof", a.is(proved))
	await.Until(t, "a's checkpoint", func() bool { c := checkpoint(t, dir); return c != nil && len(c.Positions) > 0 })
	id, first := f.only(a).id, checkpoint(t, dir).Positions[0]
	f.crash(s)
	f.set("p", "20/s") // while nobody looks

	lossy := &lossy{KV: newKV(f.client, defaultTimeout), perform: true}
	lossy.lose.Store(int64(lost))
	f.kv = lossy
	next := f.join(Options{Name: "b", StateDir: dir})
	b, leave := f.subscribe(next, "p")
	await.Until(t, "b's first proof", b.is(proved))
	told := b.told()
	if told.self != id || !strings.HasPrefix(told.log, "resume 1,policy") {
		t.Errorf("b is %s, told %s; want %s, its view of before and then the policy", told.self, told.log, id)
	}
	if n := strings.Count(told.log, "put"); n != 1+lost {
		t.Errorf("b is told %d times of its own key: %s", n, told.log)
	}
	b.is(func(r *recorder) bool {
		mono := next.o.Clock.Mono() // no later than the host's clock is read
		now, err := hostClock()
		if since := mono - (now - first.At); err != nil || r.since < since || r.since >= r.resumed.Mono {
			t.Errorf("b has held its view since %v, want from %v, the checkpoint's first position, to %v, its own beginning: %v",
				time.Duration(r.since), time.Duration(since), time.Duration(r.resumed.Mono), err)
		}
		return true
	})()
	all, err := f.instances("p")
	if err != nil || len(all) != 1 || all[0].Instance.Name != "b" {
		t.Errorf("etcd has %+v, %v; want one instance, b", all, err)
	}
	// The lease of the process before takes nothing along.
	r, err := f.client.Get(t.Context(), f.only(b).key)
	if err != nil || len(r.Kvs) != 1 || clientv3.LeaseID(r.Kvs[0].Lease) != f.only(b).lease {
		t.Errorf("b's key: %v, %v", r, err)
	}
	if err := leave(); err != nil {
		t.Error(err)
	}
	if c := checkpoint(t, dir); c != nil {
		t.Errorf("after it was closed: %+v", c)
	}
	if all, err := f.instances("p"); err != nil || len(all) != 0 {
		t.Errorf("etcd has %+v, %v", all, err)
	}
}

// TestAProcessJoinsAsNew where it cannot continue the one before; nobody keeps the
// other's share.
func TestAProcessJoinsAsNew(t *testing.T) {
	for _, test := range []struct {
		name    string
		between func(f *fixture, s *Session, a *recorder, dir string)
		stays   bool // the instance of the process before
	}{
		{"no file", func(f *fixture, s *Session, _ *recorder, dir string) {
			f.crash(s)
			for _, name := range glob(f.t, dir) {
				if err := os.Remove(name); err != nil {
					f.t.Error(err)
				}
			}
		}, true},
		{"a copy of the file", func(f *fixture, s *Session, _ *recorder, dir string) {
			f.crash(s)
			for _, name := range glob(f.t, dir) {
				text, err := os.ReadFile(name)
				if err != nil {
					f.t.Fatal(err)
				}
				if err := os.WriteFile(name+".copy", text, 0o600); err != nil {
					f.t.Fatal(err)
				}
				if err := os.Rename(name+".copy", name); err != nil {
					f.t.Fatal(err)
				}
			}
		}, true},
		{"it lives", func(*fixture, *Session, *recorder, string) {}, true},
		{"it was closed", func(f *fixture, s *Session, _ *recorder, _ string) {
			if err := s.Close(); err != nil {
				f.t.Error(err)
			}
		}, false},
		{"its key is gone", func(f *fixture, s *Session, a *recorder, _ string) {
			key := f.only(a).key
			f.crash(s)
			if _, err := f.client.Delete(f.t.Context(), key); err != nil {
				f.t.Error(err)
			}
		}, false},
		{"its key was written", func(f *fixture, s *Session, a *recorder, _ string) {
			key := f.only(a).key
			f.crash(s)
			if _, err := f.client.Put(f.t.Context(), key, "{}", clientv3.WithIgnoreLease()); err != nil {
				f.t.Error(err)
			}
		}, false},
		{"etcd has another cluster ID", func(f *fixture, s *Session, a *recorder, dir string) {
			f.crashed(s, a, dir, func(c *view.Checkpoint) { c.Cluster++ })
		}, false},
		{"etcd has gone back", func(f *fixture, s *Session, a *recorder, dir string) {
			f.crashed(s, a, dir, func(c *view.Checkpoint) { c.Positions[len(c.Positions)-1].Revision = 1 << 40 })
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, dir := setup(t), t.TempDir()
			f.set("p", "10/s")
			s := f.join(Options{Name: "a", StateDir: dir, TTL: time.Minute})
			a, _ := f.subscribe(s, "p")
			await.Until(t, "a's checkpoint", func() bool { return a.is(proved)() && checkpoint(t, dir) != nil })
			id := f.only(a).id
			test.between(f, s, a, dir)
			b, _ := f.subscribe(f.join(Options{Name: "b", StateDir: dir}), "p")
			await.Until(t, "b's first proof", b.is(proved))
			if told := b.told(); told.self == id || !strings.HasPrefix(told.log, "reset") {
				t.Errorf("b is %s, told %s", told.self, told.log)
			}
			if all, err := f.instances("p"); err != nil || (len(all) == 2) != test.stays {
				t.Errorf("etcd has %+v, %v", all, err)
			}
		})
	}
}

func glob(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.state"))
	if err != nil || len(all) == 0 {
		t.Fatalf("state files %q, %v", all, err)
	}
	return all
}

// TestACompactedHistoryIsListedAnew: the process is the same instance still, and waits
// for the settle time like any instance after a gap.
func TestACompactedHistoryIsListedAnew(t *testing.T) {
	f, dir := setup(t), t.TempDir()
	f.set("p", "10/s")
	s := f.join(Options{Name: "a", StateDir: dir})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a's checkpoint", func() bool { return a.is(proved)() && checkpoint(t, dir) != nil })
	id := f.only(a).id
	f.crash(s)
	changed := f.set("p", "20/s")
	if _, err := f.client.Compact(t.Context(), changed.Revision); err != nil {
		t.Fatal(err)
	}
	b, _ := f.subscribe(f.join(Options{Name: "b", StateDir: dir}), "p")
	await.Until(t, "b's first proof", b.is(proved))
	if told := b.told(); told.self != id || !strings.HasPrefix(told.log, "reset 1") {
		t.Errorf("b is %s, told %s; want %s and a new history", told.self, told.log, id)
	}
}

// crashed ends a session as a crash does, and edits the checkpoint that it leaves.
func (f *fixture) crashed(s *Session, a *recorder, dir string, edit func(c *view.Checkpoint)) {
	f.t.Helper()
	p := f.only(a)
	f.crash(s)
	c := checkpoint(f.t, dir)
	edit(c)
	text, err := c.Encode(p.state.origin)
	if err := errors.Join(err, os.WriteFile(glob(f.t, dir)[0], text, 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

// TestNothingIsContinuedAfterLeave: an instance whose end is announced is never
// continued, not even if its process crashes before the end.
func TestNothingIsContinuedAfterLeave(t *testing.T) {
	f, dir := setup(t), t.TempDir()
	f.set("p", "10/s")
	s := f.join(Options{Name: "a", StateDir: dir})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a's checkpoint", func() bool { return a.is(proved)() && checkpoint(t, dir) != nil })
	if _, err := f.only(a).announceEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.only(a).keep() // as the report's goroutine does
	if c := checkpoint(t, dir); c != nil {
		t.Errorf("the checkpoint is %+v", c)
	}
}

// TestAFullDiskIsLogged once: operators who rely on StateDir hear that nothing is kept.
func TestAFullDiskIsLogged(t *testing.T) {
	f, dir := setup(t), t.TempDir()
	f.set("p", "10/s")
	var logged bytes.Buffer
	s := f.join(Options{Name: "a", StateDir: dir, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a's checkpoint", func() bool { return a.is(proved)() && checkpoint(t, dir) != nil })
	p := f.only(a)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	swap := func() {
		p.state.mu.Lock()
		defer p.state.mu.Unlock()
		p.state.file, full = full, p.state.file
	}
	swap()
	p.keep()
	p.keep()
	swap()
	if err := errors.Join(s.Close(), full.Close()); err != nil {
		t.Error(err)
	}
	if text := logged.String(); strings.Count(text, "the next process here joins as a new instance") != 1 || !strings.Contains(text, "no space left") {
		t.Error(text)
	}
}

func TestStateDirIsChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{file: "not a directory", file + "/none": "not a directory", "/nowhere/at/all": "no such file"} {
		o := settings{Options: Options{StateDir: dir}}
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "empty means") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A directory that others own or may write to is refused: they could plant links.
func TestStateDirIsOursAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, says := range map[os.FileMode]string{0o700: "", 0o755: "", 0o770: "others may write there: its mode is 0770, make it 0700", 0o703: "others may write there"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := checkStateDir(dir); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%#o: %v", mode, err)
		}
	}
	if err := checkStateDir("/proc/1"); os.Geteuid() != 0 && (err == nil || !strings.Contains(err.Error(), "it belongs to user 0")) {
		t.Error(err)
	}
}

// The target of a link in the directory is not emptied.
func TestLinksInStateDirAreRefused(t *testing.T) {
	const precious = "worth more than a share"
	for name, link := range map[string]func(target, path string) error{"symbolic": os.Symlink, "hard": os.Link} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		f, _, err := openState(dir, "", "p", clock.New())
		if err != nil && f == nil {
			t.Fatal(err)
		}
		path := f.file.Name()
		if err := errors.Join(f.close(), os.Remove(path), os.WriteFile(target, []byte(precious), 0o600), link(target, path)); err != nil {
			t.Fatal(err)
		}
		f, _, err = openState(dir, "", "p", clock.New())
		if f != nil {
			_ = f.close()
		}
		if text, _ := os.ReadFile(target); err == nil || f != nil || string(text) != precious {
			t.Errorf("a %s link: %v, and its target holds %q", name, err, text)
		}
	}
}
