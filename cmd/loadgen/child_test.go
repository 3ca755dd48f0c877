package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
)

// A child that is told nonsense says so and ends; one whose orders end, ends.
func TestAChildThatIsToldNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ role, orders, want string }{
		{worker.RoleWorker, "", ""},
		{worker.RoleWorker, "nonsense\n", "invalid"},
		{worker.RoleWorker, `{"finish":true}`, "unknown field"},
		{worker.RoleWorker, `{"end":true}` + "\n", "an order before the setup"},
		{worker.RoleWorker, `{"setup":{"args":["--limit","x"]}}` + "\n", "--limit"},
		{"janitor", `{"setup":{"args":[],"counts":"` + t.TempDir() + `/counts"}}` + "\n", "janitor"},
	} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), worker.RoleVariable+"="+c.role)
		cmd.Stdin = strings.NewReader(c.orders)
		var said bytes.Buffer
		cmd.Stderr = &said
		err = cmd.Run()
		if (err == nil) != (c.want == "") || !strings.Contains(said.String(), c.want) {
			t.Errorf("%.40q: %v, said %s; want %q", c.orders, err, said.String(), c.want)
		}
	}
}
