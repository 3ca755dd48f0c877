package check

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	core "k8s.io/api/core/v1"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// node is this machine in place of a cluster: what runs in its containers are processes,
// whose paths are below dir and whose members of etcd are ports of 127.0.0.1.
type node struct {
	t     *testing.T
	dir   string
	ports map[string]string // by name and port, as in etcd-0:2379
}

var programs string // the folder of the project's programs and etcd

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "programs"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// build builds the programs.
var build = sync.OnceValue(func() error {
	for from, name := range map[string]string{"./cmd/...": "", "go.etcd.io/etcd/server/v3": "etcd"} {
		cmd := exec.Command("go", "build", "-o", programs+"/"+name, from)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
})

// newNode returns a node without containers.
func newNode(t *testing.T) *node {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	n := &node{t, t.TempDir(), map[string]string{}}
	if err := os.Mkdir(filepath.Join(n.dir, "run"), 0o700); err != nil { // of quotad's sockets
		t.Fatal(err)
	}
	return n
}

var address = regexp.MustCompile(`(?:q-quotient-(etcd-[0-9])\.q-quotient-etcd\.quota\.svc\.cluster\.local|0\.0\.0\.0|127\.0\.0\.1):([0-9]+)`)

// local returns a text of a manifest as it reads on this machine, for one pod.
func (n *node) local(pod, text string) string {
	for from, to := range map[string]string{
		"/etc/quotient": "etc", "/run/quotad": "run", "/var/lib/etcd": pod,
	} {
		text = strings.ReplaceAll(text, from, filepath.Join(n.dir, to))
	}
	return address.ReplaceAllStringFunc(text, func(a string) string {
		parts := address.FindStringSubmatch(a)
		if parts[1] != "" {
			return n.address(parts[1] + ":" + parts[2])
		}
		return n.address(pod + ":" + parts[2])
	})
}

// address returns a free address of this machine, the same for the same key.
func (n *node) address(key string) string {
	if n.ports[key] == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			n.t.Fatal(err)
		}
		defer l.Close()
		n.ports[key] = l.Addr().String()
	}
	return n.ports[key]
}

// command returns the process of a container, or of a command in it.
func (n *node) command(pod string, c *core.Container, command ...string) *exec.Cmd {
	n.t.Helper()
	env := map[string]string{"POD_NAME": "q-quotient-" + pod, "NODE_NAME": "node-1"}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env[e.Name] = n.local(pod, e.Value)
		}
	}
	if command = slices.Clone(command); len(command) == 0 {
		command = append(slices.Clone(c.Command), c.Args...)
		if len(c.Command) == 0 && c.Name != "etcd" { // the image's entry point
			command = append([]string{map[bool]string{true: "quotad", false: "quota-admin"}[c.Name == "quotad"]}, command...)
		}
	}
	for i, arg := range command {
		for name, value := range env {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		command[i] = n.local(pod, arg)
	}
	cmd := exec.CommandContext(n.t.Context(), filepath.Join(programs, command[0]), command[1:]...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// start runs a container, at most until the test ends. Its output is shown if the test
// failed, and may be read after its end.
func (n *node) start(pod string, c *core.Container) (cmd *exec.Cmd, out *bytes.Buffer) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.dir, pod), 0o700); err != nil { // its emptyDir, or its data
		n.t.Fatal(err)
	}
	cmd, out = n.command(pod, c), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("%s: %s", pod, out.String())
		}
	})
	return cmd, out
}

// passes reports whether a probe does.
func (n *node) passes(pod string, c *core.Container, p *core.Probe) bool {
	n.t.Helper()
	if p.Exec != nil {
		return n.command(pod, c, p.Exec.Command...).Run() == nil
	}
	i := slices.IndexFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == p.HTTPGet.Port.String() })
	return answers("http://" + n.address(fmt.Sprintf("%s:%d", pod, c.Ports[i].ContainerPort)) + p.HTTPGet.Path)
}

// answers reports whether a page is there.
func answers(url string) bool {
	r, err := http.Get(url)
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func (n *node) untilThere(url string) {
	n.t.Helper()
	await.Until(n.t, url+" answers", func() bool { return answers(url) })
}

func (n *node) untilReady(pod string, c *core.Container) {
	n.t.Helper()
	await.Until(n.t, pod+" is ready", func() bool { return n.passes(pod, c, c.ReadinessProbe) })
	if c.LivenessProbe != nil && !n.passes(pod, c, c.LivenessProbe) {
		n.t.Errorf("%s is ready, and does not live", pod)
	}
}

// issue does what cert-manager does for a Certificate.
func (n *node) issue(c *certmanager.Certificate, authority *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	n.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: c.Spec.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: c.Spec.DNSNames, IsCA: c.Spec.IsCA, BasicConstraintsValid: true,
	}
	for _, usage := range c.Spec.Usages {
		switch usage {
		case certmanager.UsageServerAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
			template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} // where its names lead to here
		case certmanager.UsageClientAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case certmanager.UsageDigitalSignature:
			template.KeyUsage |= x509.KeyUsageDigitalSignature
		}
	}
	if authority == nil {
		template.KeyUsage, authority, signer = x509.KeyUsageCertSign, template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, signer)
	if err != nil {
		n.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		n.t.Fatal(err)
	}
	if c.Spec.IsCA {
		authority.Raw = der
	}
	at := filepath.Join("etc", strings.TrimPrefix(c.Spec.SecretName, "q-quotient-"))
	n.write(at+"/ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))
	n.write(at+"/tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	n.write(at+"/tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return template, key
}

func (n *node) write(name string, text []byte) {
	n.t.Helper()
	name = filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// writeVolumes writes the certificates and the policies that pods mount, and returns the
// authority.
func (n *node) writeVolumes(all *objects) (*x509.Certificate, *ecdsa.PrivateKey) {
	n.t.Helper()
	authority := slices.IndexFunc(all.certificates, func(c *certmanager.Certificate) bool { return c.Spec.IsCA })
	ca, key := n.issue(all.certificates[authority], nil, nil)
	for _, c := range slices.Delete(all.certificates, authority, authority+1) {
		n.issue(c, ca, key)
	}
	n.write("etc/policies/policies.yaml", []byte(all.policies))
	return ca, key
}

// setUp runs the job of an install or an upgrade.
func (n *node) setUp(all *objects) {
	n.t.Helper()
	setup := all.pods["Job/q-quotient-setup"]
	for _, c := range append(slices.Clone(setup.InitContainers), setup.Containers...) {
		if out, err := n.command("setup", &c).CombinedOutput(); err != nil {
			n.t.Fatalf("%s: %v: %s", c.Name, err, out)
		}
	}
}

// client returns a client of quotad's socket on this node.
func (n *node) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.dir, "run", "quotad.sock"))
	}}}
}

// The real programs run by what the chart renders: three members of etcd by TLS, the job
// of an install and of an upgrade, the dashboard, and quotad. Nobody has more rights than
// its role.
func TestTheChartRuns(t *testing.T) {
	n := newNode(t)
	all := decode(t, render(t, "q", "testdata/default.values.yaml"))
	n.writeVolumes(all)
	etcd := &all.pods["StatefulSet/q-quotient-etcd"].Containers[0]
	members := []string{"etcd-0", "etcd-1", "etcd-2"}
	for _, pod := range members {
		n.start(pod, etcd)
	}
	for _, pod := range members {
		n.untilReady(pod, etcd)
	}
	// As by helm install --wait, the job comes last: it turns authentication on under them.
	dashboard := &all.pods["Deployment/q-quotient-dashboard"].Containers[0]
	n.start("dashboard", dashboard)
	n.untilReady("dashboard", dashboard)
	quotad := &all.pods["DaemonSet/q-quotient-quotad"].Containers[0]
	n.start("quotad", quotad)
	n.untilReady("quotad", quotad)
	n.setUp(all) // an install
	n.setUp(all) // and an upgrade

	n.untilThere("http://" + n.address("dashboard:8686"))
	out, err := n.command("dashboard", dashboard, "quota-admin", "get", "payments/charge").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "300000/s") {
		t.Errorf("%v: %s", err, out)
	}
	out, _ = n.command("dashboard", dashboard, "quota-admin", "set", "payments/charge", "1000/s", "--force").CombinedOutput()
	if !strings.Contains(string(out), "permission") {
		t.Errorf("the dashboard may change a limit: %s", out)
	}
	client := n.client()
	defer client.CloseIdleConnections()
	for provider, want := range map[string]int{"payments/charge": http.StatusOK, "payments/refund": http.StatusForbidden} { // by quotad's role
		r, err := client.Post("http://quotad/v1/acquire", "application/json", strings.NewReader(`{"provider": "`+provider+`", "permits": 1, "max_wait": 30}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != want {
			t.Errorf("%s by the socket: %s, %v: %s", provider, r.Status, err, answer)
		}
	}

	stranger := dashboard.DeepCopy()
	stranger.Env = slices.DeleteFunc(stranger.Env, func(e core.EnvVar) bool { return e.Name == "QUOTIENT_CERT" || e.Name == "QUOTIENT_KEY" })
	if out, err := n.command("dashboard", stranger, "quota-admin", "list", "--command-timeout=2s").CombinedOutput(); err == nil {
		t.Errorf("etcd answers who has no certificate: %s", out)
	}
}
