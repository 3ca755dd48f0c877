package central

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server on a unix socket in a temporary folder, without
// persistence.
type server struct {
	dir     string
	process *exec.Cmd
}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.process = exec.Command("redis-server", "--port", "0", "--unixsocket", s.socket(), //nolint:gosec,noctx // it ends with stop
		"--dir", dir, "--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log"))
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	redis.SetLogger(silent{})
	client := s.client(1)
	defer func() { _ = client.Close() }()
	for range 100 {
		if err = client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// silent takes the client's log: it says that the server cannot be reached, which
// is so before it is started, and after it was killed.
type silent struct{}

// Printf implements the client's logger.
func (silent) Printf(context.Context, string, ...any) {}

func (s *server) socket() string { return filepath.Join(s.dir, "redis.sock") }

func (s *server) client(connections int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket(), PoolSize: connections, MaxRetries: -1,
		DisableIdentity: true,
	})
}

// cpu returns the processor time that the server has used.
func (s *server) cpu(ctx context.Context, c *redis.Client) time.Duration {
	info, err := c.Info(ctx, "cpu").Result()
	if err != nil {
		return 0
	}
	seconds := 0.0
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		if k == "used_cpu_sys" || k == "used_cpu_user" {
			f, _ := strconv.ParseFloat(v, 64)
			seconds += f
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// kill ends the server as a crash does.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) stop() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

// version returns what the server says of itself; empty if there is none.
func version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
