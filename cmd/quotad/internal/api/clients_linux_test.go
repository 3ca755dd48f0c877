//go:build e2e && linux

package api

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
	playClients(t, limits, "inflight")
}

// What a block gives back is the same in all clients: what take has not used, if the permits have an ID. A
// reservation whose cost nobody has said stands, and a settlement that is refused can be corrected.
func TestClientsGiveBack(t *testing.T) {
	now := time.Now().Unix()
	limit := quota.Limit{Permits: 1000, Window: time.Hour, Phase: time.Duration(now%3600) * time.Second} // an hour begins now
	playClients(t, []quota.Limit{limit}, "block")
}

// playClients plays a program of each language with a quotad whose providers all have these limits.
func playClients(t *testing.T, limits []quota.Limit, program string) {
	t.Helper()
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
	for _, client := range [][]string{{"python3", "testdata/" + program + ".py", socket}, {"node", "testdata/" + program + ".mjs", script, socket}} {
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
