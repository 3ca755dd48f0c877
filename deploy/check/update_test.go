package check

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	core "k8s.io/api/core/v1"

	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

const updatePermits = 200 // per second, of all nodes

const updateValues = `
policies: {payments/charge: {limits: 200/s}}
etcd: {members: 1}
quotad: {metrics: {webSecret: metrics, tlsSecret: metrics}}
`

// updateWeb lets in who has a certificate of the release's authority, and is ann with the password
// swordfish.
const updateWeb = `
tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert}
basic_auth_users: {ann: $2a$04$Vfk2DDTxp7xSj54ugIs0V.xaWkHR7BP92VAdGTNOGXCDQWolCj/bW}
`

// grants are permits that quotads gave, by the end of their window.
type grants struct {
	mu    sync.Mutex
	ended bool
	away  int // calls while nobody had the socket
	by    map[string]int
	of    map[*node]int
}

// load takes permits of a node until the grants have ended.
func (g *grants) load(n *node) {
	client := n.client()
	defer client.CloseIdleConnections()
	for !g.over() {
		r, err := client.Post("http://quotad/v1/acquire", "application/json", strings.NewReader(`{"provider": "payments/charge", "permits": 1, "max_wait": 1}`))
		if err != nil { // the connection of an old pod, as a rule
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
				g.mu.Lock()
				g.away++
				g.mu.Unlock()
			}
			continue
		}
		var granted struct{ Until string }
		err = json.NewDecoder(r.Body).Decode(&granted)
		_ = r.Body.Close()
		if err == nil && r.StatusCode == http.StatusOK {
			g.mu.Lock()
			g.by[granted.Until]++
			g.of[n]++
			g.mu.Unlock()
		}
	}
}

func (g *grants) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

func (g *grants) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// untilMore waits until a node has given another permit.
func (g *grants) untilMore(t *testing.T, when string, n *node) {
	t.Helper()
	count := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.of[n]
	}
	before := count()
	await.Until(t, when+": permits", func() bool { return count() > before })
}

// In an update the new pod's quotad serves beside the old one, until Kubernetes stops that:
// some process always has the socket, and the sum holds.
func TestAnUpdateLosesNothing(t *testing.T) {
	n := newNode(t)
	n.write("values.yaml", []byte(updateValues))
	all := decode(t, render(t, "q", filepath.Join(n.dir, "values.yaml")))
	ca, key := n.writeVolumes(all)
	n.issue(&certmanager.Certificate{Spec: certmanager.CertificateSpec{
		SecretName: "metrics", CommonName: "metrics", Usages: []certmanager.KeyUsage{certmanager.UsageServerAuth, certmanager.UsageClientAuth},
	}}, ca, key)
	n.write("etc/metrics/web.yaml", []byte(updateWeb))
	etcd := &all.pods["StatefulSet/q-quotient-etcd"].Containers[0]
	n.start("etcd-0", etcd)
	n.untilReady("etcd-0", etcd)
	n.setUp(all)
	other := newNode(t)
	other.ports = n.ports
	if err := os.Symlink(filepath.Join(n.dir, "etc"), filepath.Join(other.dir, "etc")); err != nil {
		t.Fatal(err)
	}
	quotad := &all.pods["DaemonSet/q-quotient-quotad"].Containers[0]
	const pod = "quotad-3" // the new one
	before, _ := n.start("quotad-1", quotad)
	n.untilReady("quotad-1", quotad)
	other.start("quotad-2", quotad)
	other.untilReady("quotad-2", quotad)

	g := &grants{by: map[string]int{}, of: map[*node]int{}}
	var callers sync.WaitGroup
	defer callers.Wait()
	defer g.end()
	for range 4 {
		callers.Go(func() { g.load(n) })
		callers.Go(func() { g.load(other) })
	}
	g.untilMore(t, "at the start", n)
	g.untilMore(t, "at the start", other)
	socket := func() os.FileInfo {
		i, err := os.Stat(filepath.Join(n.dir, "run", "quotad.sock"))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	old := socket()
	n.start(pod, quotad)
	await.Until(t, "the new pod has the socket", func() bool { return !os.SameFile(old, socket()) })
	n.untilReady(pod, quotad)
	g.untilMore(t, "beside the old pod", n)
	if err := before.Process.Signal(syscall.SIGTERM); err != nil { // as Kubernetes does
		t.Fatal(err)
	}
	if err := before.Wait(); err != nil {
		t.Errorf("the old pod: %v", err)
	}
	g.untilMore(t, "after the update", n)
	n.scrape(pod, quotad)
	g.untilMore(t, "in the end", other)
	g.end()
	callers.Wait()
	t.Logf("%d windows, of at most %d permits", len(g.by), slices.Max(slices.Collect(maps.Values(g.by))))
	for until, n := range g.by {
		if n > updatePermits {
			t.Errorf("the window until %s has %d permits, the limit is %d", until, n, updatePermits)
		}
	}
	if g.away > 0 {
		t.Errorf("the socket was away for %d calls", g.away)
	}
}

// scrape gets the metrics of a pod as Prometheus does, and nothing without its certificate.
func (n *node) scrape(pod string, c *core.Container) {
	n.t.Helper()
	i := slices.IndexFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == "metrics" })
	if i < 0 {
		n.t.Fatal("no port is called metrics")
	}
	at := filepath.Join(n.dir, "etc", "metrics")
	for cert, key := range map[string]string{"": "", at + "/tls.crt": at + "/tls.key"} {
		config, err := certs.Client(at+"/ca.crt", cert, key)
		if err != nil {
			n.t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		r, err := client.Get("https://ann:swordfish@" + n.address(pod+":9464") + "/metrics")
		if (err == nil) != (cert != "") {
			n.t.Errorf("with certificate %q: %v", cert, err)
		}
		if err != nil {
			continue
		}
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || !strings.Contains(string(text), `quotient_share_permits{provider="payments/charge",window="1s"}`) {
			n.t.Errorf("%s: %s, %v: %s", pod, r.Status, err, text)
		}
	}
}
