//go:build e2e && linux

package api

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/quota"
)

// The clients end their calls in flight: when a block is left, by close, by a settlement, and those that
// are forgotten with their hold.
func TestClientsEndCallsInFlight(t *testing.T) {
	limits, err := quota.ParseLimits("3 inflight hold=4s")
	if err != nil {
		t.Fatal(err)
	}
	socket, group := filepath.Join(t.TempDir(), "quotad.sock"), ""
	f := Flags{socket: socket, limits: roomy, Group: &group}
	s, err := f.Listen(newHost(t, consumer.Fixed(quota.Policy{Limits: limits})), quiet)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve() }()
	script, err := filepath.Abs(cmp.Or(os.Getenv("QUOTIENT_TYPESCRIPT"), "../../../../clients/typescript/dist/quotient.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range [][]string{{"python3", "testdata/inflight.py", socket}, {"node", "testdata/inflight.mjs", script, socket}} {
		cmd := exec.Command(client[0], client[1:]...)
		cmd.Env = append(os.Environ(), "PYTHONPATH=../../../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
		child.Tie(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", client, err, out)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
