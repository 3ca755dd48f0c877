//go:build e2e && linux

package quotad

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A quotad that refuses a connection has answered and closed it before the client writes. The client says what quotad
// has said, in place of its broken pipe.
func TestAnswersBeforeTheCall(t *testing.T) {
	all := programs(t)
	for kind, program := range map[string][]string{
		"threads":    {"python3", "testdata/turned.py", "threads"},
		"tasks":      {"python3", "testdata/turned.py", "tasks"},
		"reset":      {"python3", "testdata/turned.py", "reset"},
		"TypeScript": {"node", "testdata/turned.mjs", all["TypeScript"][2]},
	} {
		t.Run(kind, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "quotad.sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			c := command(t, program, socket)
			var said bytes.Buffer
			c.Stdout = &said
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			start(t, c, os.Stderr)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					if kind == "reset" {
						_, _ = conn.Read(make([]byte, 1))
					}
					const body = `{"detail":"256 connections","retry_after":1}`
					_, _ = io.WriteString(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 44\r\nConnection: close\r\n\r\n"+body)
					_ = conn.Close()
					_, _ = io.WriteString(in, "\n")
				}
			}()
			if err := c.Wait(); err != nil || said.String() != "Limited: 256 connections\n" {
				t.Errorf("%v, it says %s", err, &said)
			}
		})
	}
}
