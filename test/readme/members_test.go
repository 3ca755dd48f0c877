//go:build e2e

package readme

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// members start what docs/run.md starts, at addresses of loopback that nobody else has.
func members(t *testing.T, dir, script string) {
	t.Helper()
	for _, tool := range []string{"go.etcd.io/etcd/server/v3", "./cmd/quota-admin"} {
		name := map[bool]string{true: "etcd", false: "quota-admin"}[strings.HasPrefix(tool, "go.")]
		if out, err := shell(t.Context(), "go build -o "+filepath.Join(dir, "bin", name)+" "+tool).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p); wait' EXIT\n"+script)
	cmd.Dir, cmd.WaitDelay = dir, 20*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	} else {
		t.Logf("%s", out)
	}
}

// until is a function of bash: it repeats a doctor until that says something.
const until = `
doctor() { quota-admin doctor --command-timeout 3s >said 2>&1 || true; }
until_says() { doctor; until grep -q "$1" said; do doctor; done; cat said; }
until_well() { doctor; while grep -q "^problem\|^quota-admin" said; do doctor; done; cat said; }
`

// Three members on one machine are frozen, continued, ended and started again as the page says, and
// doctor says each time what is wrong.
func TestThreeMembersOnOneMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := strings.NewReplacer("go build -o bin/etcd go.etcd.io/etcd/server/v3", "", "127.0.0.1", "127.0.77.9", "/tmp/", dir+"/").
		Replace(indented(t, "bin/etcd --name"))
	members(t, dir, until+script+`
		until_well
		kill -STOP $first; until_says "accepts connections, but does not answer"
		kill -CONT $first; kill $first; until_says "connection refused"
		wait $first || true # it has its address for its peers a while longer than that for clients
		start 1; until_well
	`)
}

// Three members with the certificates of the page, which clients with certificates reach.
func TestThreeMembersWithCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here := []string{"DNS:$member", "IP:127.0.77.${member#etcd-}", "/var/lib/etcd", dir + "/$name", "https://$name:", "https://127.0.77.${name#etcd-}:",
		"https://0.0.0.0:", "https://127.0.77.${name#etcd-}:", "--enable-grpc-gateway=false", "--enable-grpc-gateway=false --log-level error &"} // a member calls others from 127.0.0.1
	for n := range 3 {
		name, address := fmt.Sprintf("etcd-%d", n+1), fmt.Sprintf("127.0.77.%d", n+1)
		here = append(here, "DNS:"+name, "IP:"+address+",IP:127.0.0.1", "https://"+name+":", "https://"+address+":")
	}
	fill := strings.NewReplacer(here...)
	script := until + fill.Replace(indented(t, "issue() {"))
	member := fill.Replace(indented(t, "--peer-cert-allowed-cn"))
	for n := range 3 {
		script += strings.ReplaceAll(member, "name=etcd-1\n", fmt.Sprintf("name=etcd-%d\n", n+1))
	}
	members(t, dir, script+`
		export QUOTIENT_ENDPOINTS=https://127.0.77.1:2379,https://127.0.77.2:2379,https://127.0.77.3:2379
		export QUOTIENT_CACERT=ca.pem QUOTIENT_CERT=ann.pem QUOTIENT_KEY=ann-key.pem
		until_well
	`)
}
