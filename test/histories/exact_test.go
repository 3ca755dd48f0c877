package histories

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quotient-limiter/quotient/test/mutant"
)

var (
	exactFlag = flag.Bool("exact", false, "plays with a Go runtime without chance: one seed is one history, whatever else the machine does")
	orderFlag = flag.Int("order", 0, "has TestSeedsRepeat print how histories go, the last first if it is negative")
)

// exact is not empty in an exact build.
var exact string

// playExactly runs this process's tests in an exact build.
func playExactly() (code int) {
	dir, err := os.MkdirTemp("", "exact")
	if err == nil {
		defer os.RemoveAll(dir)
		var root, binary string
		if root, err = mutant.Root(); err == nil {
			binary, err = mutant.Sources{}.BuildExact(context.Background(), root, dir)
		}
		if err == nil {
			play := exec.Command(binary, os.Args[1:]...)
			play.Stdout, play.Stderr = os.Stdout, os.Stderr
			err = play.Run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// went says how a history went.
func (w *world) went(wrong []string) string { return fmt.Sprintf("%x %+v %q", w.sum, w.stats, wrong) }

// TestSeedsRepeat plays histories of all kinds and those that catch mutants, in two
// processes beside each other and in opposite orders. All go the same way.
func TestSeedsRepeat(t *testing.T) {
	switch {
	case exact == "":
		t.Log("runs with -exact")
		return
	case *orderFlag != 0:
		tellHistories(t, *orderFlag < 0)
		return
	}
	var wg sync.WaitGroup
	var told [2]string
	for i, order := range []string{"1", "-1"} {
		wg.Go(func() {
			out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSeedsRepeat$", "-order", order).CombinedOutput()
			if told[i] = string(out); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	one, other := strings.Split(told[0], "\n"), strings.Split(told[1], "\n")
	for _, history := range one {
		if !slices.Contains(other, history) {
			t.Errorf("only one of two processes had this history: %s", history)
		}
	}
	n := len(one) - 2 // PASS, and what follows the last newline
	if t.Logf("%d histories", n); n < len(hunts) {
		t.Error("these are too few")
	}
}

// tellHistories prints how histories went, a line each.
func tellHistories(t *testing.T, backwards bool) {
	t.Helper()
	var tell []func()
	add := func(name string, k kind, seed uint64, l *lead) {
		tell = append(tell, func() {
			w, wrong := history(t, k, seed, false, l)
			fmt.Println(name, seed, w.went(wrong))
		})
	}
	for _, k := range kinds {
		for seed := range uint64(3) {
			add(string(k), k, seed, nil)
		}
	}
	known := recorded(t)
	for i := range hunts {
		h := &hunts[i]
		add(h.name, h.kind, max(1, known[h.name]), &h.lead)
	}
	if backwards {
		slices.Reverse(tell)
	}
	for _, f := range tell {
		f()
	}
}
