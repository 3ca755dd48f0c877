//go:build compat

package live_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// A snapshot is restored as docs/run.md says. One key was used before it and after it, one only
// after it, and one never. None is handed out twice, by an instance that did not use it either. An
// operator gives the counts by the page's commands, and then the rest of each limit is used, once.
func TestKeysInARestoredSnapshot(t *testing.T) {
	store, client := newBackups(t)
	p := exact(t, "3000/200ms", 500*ms)
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 50, Window: 24 * time.Hour}}}
	if time.Now().UTC().Hour() == 23 {
		p.Zone = "Etc/GMT+9"
	}
	g := newGroup(t, client, p)
	all := g.join(2)
	for _, m := range all {
		m.stop() // keys are the load
	}
	issued := map[string]int{}
	use := func(m *member, key string, most int) {
		for issued[key] < most && m.limiter.Key(key).TryAcquire() {
			issued[key]++
		}
	}
	uses := func(m *member, key string, most int) {
		t.Helper()
		g.await("key "+key+" is used", func() bool { use(m, key, most); return issued[key] == most })
	}
	uses(all[0], "before", 20)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	save(t, client, file)
	uses(all[0], "before", 50)
	uses(all[0], "after", 50)
	uses(all[0], "half", 30)
	store.fromSnapshot(file)
	for _, m := range all {
		g.await("an instance is active again", func() bool { st := m.limiter.Status(); return st.State == quota.StateActive && st.Instances == 2 })
	}
	const forever = 1000
	withheld := func(key string) {
		t.Helper()
		g.await("key "+key+" is withheld", func() bool {
			for _, m := range all {
				use(m, key, forever)
				var limited consumer.LimitError
				if err := m.limiter.Key(key).Acquire(t.Context(), 0); !errors.As(err, &limited) || limited.Cause == nil || !strings.Contains(limited.Cause.Error(), "quota-admin budget "+provider+" --key ") {
					return false
				}
			}
			return true
		})
	}
	for key, want := range map[string]int{"before": 50, "after": 50, "half": 30, "never": 0} {
		if withheld(key); issued[key] != want {
			t.Errorf("%d permits of key %s after the restore, %d before it; the limit is 50", issued[key], key, want)
		}
	}
	for _, m := range all {
		g.await("the status says so", func() bool { return strings.Contains(m.limiter.Status().Problem, "quota-admin budget") })
	}
	admin := filepath.Join(t.TempDir(), "quota-admin")
	if out, err := exec.Command("go", "build", "-o", admin, "github.com/quotient-limiter/quotient/cmd/quota-admin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	operate := func(args ...string) string {
		out, _ := exec.Command(admin, append([]string{"--endpoints", store.Endpoints()[0], "--prefix", g.prefix}, args...)...).CombinedOutput()
		return string(out)
	}
	if out := operate("doctor"); !strings.Contains(out, "of keys that were given no count since, because") {
		t.Error(out)
	}
	counts := filepath.Join(t.TempDir(), "counts.txt")
	if err := os.WriteFile(counts, []byte("after 50\nbefore 50\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--key", "half", "--used", fmt.Sprint(issued["half"])}, {"--keys-file", counts}, {"--keys-unused"}} {
		if out := operate(append([]string{"budget", provider}, args...)...); strings.Contains(out, "quota-admin:") || strings.Contains(out, "Withheld") {
			t.Error(out)
		}
	}
	g.await("what is left is used", func() bool {
		for _, m := range all {
			for _, key := range []string{"before", "after", "half", "never"} {
				use(m, key, forever)
			}
		}
		return issued["half"] >= 50 && issued["never"] >= 50
	})
	for range 50 {
		for _, m := range all {
			for _, key := range []string{"before", "after", "half", "never"} {
				use(m, key, forever)
			}
		}
	}
	for key, n := range issued {
		if n != 50 {
			t.Errorf("%d permits of key %s, the limit is 50", n, key)
		}
	}
	if out := operate("doctor"); strings.Contains(out, "does not count") {
		t.Error(out)
	}
}
