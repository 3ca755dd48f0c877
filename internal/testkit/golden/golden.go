// Package golden compares what tests make with files that somebody has looked at.
// A test that imports it has a flag -update, which writes the files anew.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files under testdata anew instead of comparing with them")

// Check fails the test if got differs from the file of that name under testdata.
func Check(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is made otherwise; look at it, then write it anew by -update (-want +got):\n%s", file, diff)
	}
}
