package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
)

// Gubernator is a daemon of a gubernator cluster. It answers HTTP at Address.
type Gubernator struct {
	Address string
	*Server
}

// BuildGubernator builds the daemon from the module bench/gubernator into a folder, and returns
// the program. bench is the path of the module bench.
func BuildGubernator(ctx context.Context, bench, folder string) (string, error) {
	program := filepath.Join(folder, "gubernator")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/gubernator-io/gubernator/v2/cmd/gubernator") //nolint:gosec // in our own folder
	build.Dir = filepath.Join(bench, "gubernator")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("gubernator does not build: %w: %s", err, out)
	}
	return program, nil
}

// StartGubernator starts a cluster of so many daemons, which find each other by an etcd at the
// endpoints, and waits until each knows all.
func StartGubernator(ctx context.Context, program string, daemons int, endpoints []string) (all []*Gubernator, err error) {
	addresses, err := etcdtest.FreeAddresses(2 * daemons)
	if err != nil {
		return nil, err
	}
	for i := range daemons {
		grpc, web := addresses[2*i], addresses[2*i+1]
		cmd := exec.Command(program) //nolint:noctx // it ends by Close
		cmd.Env = append(os.Environ(), "GUBER_GRPC_ADDRESS="+grpc, "GUBER_ADVERTISE_ADDRESS="+grpc, "GUBER_HTTP_ADDRESS="+web,
			"GUBER_PEER_DISCOVERY_TYPE=etcd", "GUBER_ETCD_ENDPOINTS="+strings.Join(endpoints, ","), "GUBER_ETCD_ADVERTISE_ADDRESS="+grpc,
			"GUBER_INSTANCE_ID="+web, "OTEL_TRACES_EXPORTER=none")
		s, err := start(cmd)
		if err != nil {
			return nil, err
		}
		all = append(all, &Gubernator{web, s})
	}
	for _, g := range all {
		if err := g.await(ctx, func() error { return g.healthy(ctx, daemons) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// healthy returns nil if the daemon knows so many peers, itself included.
func (g *Gubernator) healthy(ctx context.Context, peers int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Address+"/v1/HealthCheck", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && !strings.Contains(strings.ReplaceAll(string(text), " ", ""), fmt.Sprintf(`"peer_count":%d`, peers)) {
		err = fmt.Errorf("health: %s", text)
	}
	return err
}

// GubernatorClient calls a daemon by HTTP, with so many connections.
type GubernatorClient struct {
	url  string
	http *http.Client
}

// NewGubernatorClient returns a client of the daemon at an address.
func NewGubernatorClient(address string, connections int) *GubernatorClient {
	return &GubernatorClient{"http://" + address + "/v1/GetRateLimits", &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: 5 * time.Second,
	}}
}

// Take asks for one call of a limit per second of the key "bench". behavior is a name of the
// protocol, such as GLOBAL.
func (c *GubernatorClient) Take(ctx context.Context, limit int64, behavior string) (bool, error) {
	body := fmt.Sprintf(`{"requests":[{"name":"bench","unique_key":"bench","hits":"1","limit":"%d","duration":"1000","behavior":"%s"}]}`, limit, behavior)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	var said struct {
		Responses []struct{ Status, Error string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return false, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	if len(said.Responses) != 1 || said.Responses[0].Error != "" {
		return false, fmt.Errorf("gubernator: status %d, %v", answer.StatusCode, said)
	}
	return said.Responses[0].Status != "OVER_LIMIT", nil
}
