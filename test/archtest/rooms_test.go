package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// maxRooms bounds the folders of internal: beyond it a newcomer does not find the one
// that has an idea.
const maxRooms = 20

var row = regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| \\S")

// DESIGN.md has a line for each folder of internal, of internal/testkit, of consumer/internal, of
// internal/window, of each command's internal and of test, in their order, and for nothing else.
func TestEveryRoomHasALine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		named = append(named, m[1])
	}
	product := rooms(t, "internal")
	if len(product) > maxRooms {
		t.Errorf("internal has %d rooms, %d are allowed", len(product), maxRooms)
	}
	want := product
	for _, folder := range []string{"internal/testkit", "consumer/internal", "internal/window", "cmd/loadgen/internal", "cmd/quota-admin/internal", "cmd/quotad/internal", "test"} {
		want = append(want, rooms(t, folder)...)
	}
	if !slices.Equal(named, want) {
		t.Errorf("DESIGN.md has lines for\n%q, and the folders are\n%q", named, want)
	}
}

// rooms returns the names of a folder's folders, sorted.
func rooms(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "testdata" {
			names = append(names, e.Name())
		}
	}
	return names
}
