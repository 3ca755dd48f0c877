package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
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
// endpoints, and waits until each knows all. Each has room for so many keys, 0 for its default.
func StartGubernator(ctx context.Context, program string, daemons, room int, endpoints []string) (all []*Gubernator, err error) {
	addresses, err := embedded.FreeAddresses(2 * daemons)
	if err != nil {
		return nil, err
	}
	for i := range daemons {
		grpc, web := addresses[2*i], addresses[2*i+1]
		cmd := exec.Command(program) //nolint:noctx // it ends by Close
		cmd.Env = append(os.Environ(), "GUBER_GRPC_ADDRESS="+grpc, "GUBER_ADVERTISE_ADDRESS="+grpc, "GUBER_HTTP_ADDRESS="+web,
			"GUBER_PEER_DISCOVERY_TYPE=etcd", "GUBER_ETCD_ENDPOINTS="+strings.Join(endpoints, ","), "GUBER_ETCD_ADVERTISE_ADDRESS="+grpc,
			"GUBER_INSTANCE_ID="+web, "OTEL_TRACES_EXPORTER=none",
			"GUBER_METRIC_FLAGS=golang")
		if room > 0 {
			cmd.Env = append(cmd.Env, "GUBER_CACHE_SIZE="+strconv.Itoa(room))
		}
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
	text, err := g.get(ctx, "/v1/HealthCheck")
	if err == nil && !strings.Contains(strings.ReplaceAll(text, " ", ""), fmt.Sprintf(`"peer_count":%d`, peers)) {
		err = fmt.Errorf("health: %s", text)
	}
	return err
}

// Live returns the bytes of the heap that were in use after the daemon's last collection: Go
// collects again when there are twice as many.
func (g *Gubernator) Live(ctx context.Context) (float64, error) {
	text, err := g.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\ngo_memstats_next_gc_bytes ")
	value, _, _ := strings.Cut(rest, "\n")
	next, err := strconv.ParseFloat(value, 64)
	return next / 2, err
}

func (g *Gubernator) get(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Address+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
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

// Take asks for one call of a limit per second of each of the keys, in one request: at most
// 1,000. It returns whether none is over. behavior is a name of the protocol, such as GLOBAL.
func (c *GubernatorClient) Take(ctx context.Context, limit int64, behavior string, keys ...string) (bool, error) {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = fmt.Sprintf(`{"name":"bench","unique_key":%q,"hits":"1","limit":"%d","duration":"1000","behavior":"%s"}`, key, limit, behavior)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(`{"requests":[`+strings.Join(all, ",")+`]}`))
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
	ok := true
	for _, one := range said.Responses {
		if one.Error != "" {
			return false, fmt.Errorf("gubernator: %s", one.Error)
		}
		ok = ok && one.Status != "OVER_LIMIT"
	}
	if len(said.Responses) != len(keys) {
		return false, fmt.Errorf("gubernator: status %d, %v", answer.StatusCode, said)
	}
	return ok, nil
}
