package mutant

import (
	"os"
	"testing"
)

// The mutants of mutant_test.go break what stands here, and its tests catch them.

const dozen = 12

func TestOutside(t *testing.T) {
	if dozen != 12 {
		t.Error("wrong")
	}
}

type box int

func (b box) twice() int { return 2 * int(b) }

func TestMethod(t *testing.T) {
	if box(2).twice() != 4 {
		t.Error("wrong")
	}
}

func second(of ...int) (n int) { return of[1] }

func TestVariadic(t *testing.T) {
	if second(3, 4) != 4 {
		t.Error("wrong")
	}
}

func (box) holds(int, ...string) bool { return false }

func TestUnnamed(t *testing.T) {
	if box(0).holds(1, "2") {
		t.Error("wrong")
	}
}

func largest[T int | string](first T, others ...T) T {
	for _, other := range others {
		first = max(first, other)
	}
	return first
}

func TestGeneric(t *testing.T) {
	if largest("a", "c", "b") != "c" {
		t.Error("wrong")
	}
}

func set(n *int, to int) { *n = to }

func TestNoResult(t *testing.T) {
	var n int
	if set(&n, 3); n != 3 {
		t.Error("wrong")
	}
}

func up(n int) int { return n + 1 }

// TestSeveralFiles sees nothing while only one of two files is broken.
func TestSeveralFiles(t *testing.T) {
	if up(1) != 2 && down(1) != 0 {
		t.Error("wrong")
	}
}

// exit ends the process as a TestMain does that cannot begin.
func exit() int { //nolint:unused // the mutant Exits calls it
	os.Exit(1)
	return 0
}
