package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// server serves all tests that need no etcd of their own; they stay apart by
// prefix.
var server *embedded.Cluster

// asTool is the variable that makes this program the tool itself.
const asTool = "QUOTA_ADMIN_TEST_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		main()
	}
	await.Together(4)
	os.Exit(func() int {
		var err error
		if server, err = embedded.Start(embedded.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		return m.Run()
	}())
}

// benches counts those that were made.
var benches atomic.Int64

// bench calls the tool in-process, against one etcd and one prefix.
type bench struct {
	t      *testing.T
	prefix string
	env    map[string]string
	stdin  io.Reader
}

// newBench returns a bench with a prefix that no other test uses.
func newBench(t *testing.T, cluster *embedded.Cluster) *bench {
	t.Helper()
	prefix := fmt.Sprintf("/%s-%d/", url.PathEscape(t.Name()), benches.Add(1)) // also with -count
	return &bench{t: t, prefix: prefix, stdin: strings.NewReader(""), env: map[string]string{
		"QUOTIENT_ENDPOINTS": strings.Join(cluster.Endpoints(), ","),
		"QUOTIENT_PREFIX":    prefix,
		"QUOTIENT_AUTHOR":    "ann@host",
		// Busy machines take their time.
		"QUOTIENT_DIAL_TIMEOUT":    "1m",
		"QUOTIENT_COMMAND_TIMEOUT": "1m",
	}}
}

// call runs the tool and returns what came of it.
func (b *bench) call(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, b.stdin, &out, &errs, func(name string) string { return b.env[name] })
	return code, out.String(), errs.String()
}

// want runs the tool and demands an exit code; it returns stdout and stderr.
func (b *bench) want(code int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	got, stdout, stderr := b.call(args...)
	b.demand(code, got, args, stdout, stderr)
	return stdout, stderr
}

// demand fails the test if the tool has ended with another exit code.
func (b *bench) demand(code, got int, args []string, stdout, stderr string) {
	b.t.Helper()
	if got != code {
		b.t.Fatalf("quota-admin %q: exit %d, want %d\nstdout: %s\nstderr: %s", args, got, code, stdout, stderr)
	}
}

// put writes a key as somebody without this tool would.
func (b *bench) put(client *clientv3.Client, key string, value any) {
	b.t.Helper()
	text, ok := value.(string)
	if !ok {
		if i, ok := value.(protocol.Instance); ok {
			value = protocol.Incarnation(i)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			b.t.Fatal(err)
		}
		text = string(encoded)
	}
	ctx := b.t.Context()
	var options []clientv3.OpOption
	if strings.Contains(key, "/instances/") || strings.HasPrefix(key, "reports/") {
		lease, err := client.Grant(ctx, 600) // as instances do
		if err != nil {
			b.t.Fatal(err)
		}
		options = append(options, clientv3.WithLease(lease.ID))
	}
	if _, err := client.Put(ctx, b.prefix+key, text, options...); err != nil {
		b.t.Fatal(err)
	}
}
