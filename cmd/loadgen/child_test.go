package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/cli/child"
)

// A child that is told nonsense says so and ends; one whose orders end, ends.
func TestAChildThatIsToldNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ orders, want string }{
		{"", ""},
		{"nonsense\n", "invalid"},
		{`{"finish":true}`, "unknown field"},
		{`{"args":["--limit","x"]}` + "\n", "--limit"},
	} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), child.RoleVariable+"="+worker.Role)
		cmd.Stdin = strings.NewReader(c.orders)
		var said bytes.Buffer
		cmd.Stderr = &said
		err = cmd.Run()
		if (err == nil) != (c.want == "") || !strings.Contains(said.String(), c.want) {
			t.Errorf("%.40q: %v, said %s; want %q", c.orders, err, said.String(), c.want)
		}
	}
}
