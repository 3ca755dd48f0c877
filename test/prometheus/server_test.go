//go:build e2e

package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
)

// server is a Prometheus on a loopback port.
type server struct {
	address string
	log     strings.Builder
}

const configuration = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: workers
    static_configs: [{targets: [%s]}]
`

// start starts a Prometheus that scrapes the targets. It ends with the test.
func start(t *testing.T, targets []string) *server {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("there is no Prometheus (%v): apt-get install prometheus, or run .ci/run prometheus", err)
	}
	rules, err := filepath.Abs("../../deploy/prometheus/quotient.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf(configuration, rules, strings.Join(targets, ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{address: freePort(t)}
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+s.address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	p, err := child.Run(cmd, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(time.Minute); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	eventually(t, "Prometheus is ready", func() error {
		_, err := s.get(t.Context(), "/-/ready", nil)
		return err
	})
	return s
}

// freePort returns a loopback address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	free, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

func (s *server) get(ctx context.Context, path string, q url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, b)
	}
	return b, err
}

// api asks Prometheus's API, and decodes the answer's data.
func (s *server) api(ctx context.Context, path string, q url.Values, into any) error {
	b, err := s.get(ctx, "/api/v1/"+path, q)
	if err != nil {
		return err
	}
	var answer struct {
		Status string
		Data   json.RawMessage
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, b)
	}
	return json.Unmarshal(answer.Data, into)
}

// sample is one element of an instant query's answer.
type sample struct {
	Metric map[string]string
	Value  [2]any // time and value
}

func (s *server) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct{ Result []sample }
	err := s.api(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// value asks for a single number.
func (s *server) value(ctx context.Context, expr string) (v float64, err error) {
	samples, err := s.query(ctx, expr)
	if err != nil {
		return 0, err
	}
	if len(samples) != 1 {
		return 0, fmt.Errorf("%s has %d values: %v", expr, len(samples), samples)
	}
	_, err = fmt.Sscan(fmt.Sprint(samples[0].Value[1]), &v)
	return v, err
}

// is checks that an expression has a value.
func (s *server) is(ctx context.Context, expr string, want float64) error {
	got, err := s.value(ctx, expr)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", expr, got, want)
	}
	return err
}

// eventually waits until check returns no error. Its end is for what hangs.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(90 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
