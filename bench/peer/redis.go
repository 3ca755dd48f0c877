// Package peer starts what Quotient is compared with: servers as processes, and programs of Java.
package peer

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server without network and persistence, on the Unix socket Socket.
type Redis struct {
	Socket string
	*Server
}

// StartRedis starts a redis-server whose files are in a folder, and waits until it answers.
func StartRedis(ctx context.Context, folder string) (*Redis, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("%w; Debian: apt-get install redis-server", err)
	}
	redis.SetLogger(silent{})
	r := &Redis{Socket: filepath.Join(folder, "redis.sock")}
	var err error
	r.Server, err = start(exec.Command("redis-server", "--port", "0", "--unixsocket", r.Socket, "--dir", folder, //nolint:gosec,noctx // it ends by Close
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(folder, "redis.log")))
	if err != nil {
		return nil, err
	}
	client := r.Client(1)
	defer client.Close()
	return r, r.await(ctx, func() error { return client.Ping(ctx).Err() })
}

// Client returns a client with so many connections that does not repeat calls.
func (r *Redis) Client(connections int) *redis.Client { return RedisClient(r.Socket, connections) }

// RedisClient returns a client of a Unix socket with so many connections that does not repeat
// calls.
func RedisClient(socket string, connections int) *redis.Client {
	const patience = time.Minute // a busy machine lets a peer wait
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: socket, PoolSize: connections, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Server is a process that a comparison started.
type Server struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

func start(cmd *exec.Cmd) (*Server, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd, gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.gone)
	}()
	return s, nil
}

// await asks until an answer has no error. It closes the server if none comes.
func (s *Server) await(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			_ = s.Close()
			return fmt.Errorf("%s does not answer: %w", filepath.Base(s.cmd.Path), err)
		case <-s.gone:
			return fmt.Errorf("%s ended: %v", filepath.Base(s.cmd.Path), s.cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close kills the server, and returns when it is gone.
func (s *Server) Close() error {
	err := s.cmd.Process.Kill()
	<-s.gone
	return err
}

// Used closes the server, and returns the processor time that it used, its start included.
func (s *Server) Used() time.Duration {
	_ = s.Close()
	return s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
}

var _ io.Closer = (*Server)(nil)

// SlidingLog keeps the time of each call of a span in a sorted set: its arguments are the most
// calls and the span in microseconds.
var SlidingLog = redis.NewScript(`
local now = redis.call('TIME')
local t = now[1] * 1000000 + now[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', t - tonumber(ARGV[2]))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], t, t .. ':' .. redis.call('INCR', KEYS[1] .. ':n'))
redis.call('PEXPIRE', KEYS[1], 2000)
return 1`)
