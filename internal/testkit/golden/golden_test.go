package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// failures counts instead of failing.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Errorf(string, ...any) { f.n++ }

func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("testdata", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &failures{TB: t}
	if Check(f, "a.txt", "one\n"); f.n != 0 {
		t.Error("what is the same fails")
	}
	if Check(f, "a.txt", "two\n"); f.n != 1 {
		t.Error("what differs does not fail")
	}
	*update = true
	defer func() { *update = false }()
	Check(f, "a.txt", "two\n")
	*update = false
	if Check(f, "a.txt", "two\n"); f.n != 1 {
		t.Error("-update does not write the file")
	}
}
