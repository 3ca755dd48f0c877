package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// Flags are the command line of the service.
type Flags struct {
	TLS            *listen.TLS
	Group          *string // that may use the socket; "": the process's own
	socket, listen string
	limits         limits
}

// limits bound what clients may hold. A connection has at most one call under way, so
// they bound the calls that run and wait too.
type limits struct {
	connections int // of all clients
	perClient   int // connections of one client, and its IDs
}

const maxConnections = 100_000

// Register adds the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.socket, "socket", "/run/quotad/quotad.sock", "`path` of the Unix socket, of mode 0660; empty: serve none")
	set.StringVar(&f.listen, "listen", "", "loopback `address` to serve by TLS too, such as 127.0.0.1:8787")
	set.IntVar(&f.limits.connections, "max-connections", 4096, "how many connections of all programs may be open")
	set.IntVar(&f.limits.perClient, "client-connections", 256, "how many connections one process may have open; also how many batches that it has not closed, calls in flight, and costs that it has not told yet")
}

// Check returns what is wrong with the flags.
func (f *Flags) Check() error {
	address, err := netip.ParseAddrPort(f.listen)
	switch {
	case f.socket == "" && f.listen == "":
		return errors.New("--socket is empty: give its path, or an address by --listen")
	case f.limits.connections < 2 || f.limits.connections > maxConnections:
		return fmt.Errorf("--max-connections %d: must be from 2 to %d", f.limits.connections, maxConnections)
	case f.limits.perClient < 1 || f.limits.perClient > f.limits.connections:
		return fmt.Errorf("--client-connections %d: must be from 1 to --max-connections, %d", f.limits.perClient, f.limits.connections)
	case f.listen != "" && (err != nil || !address.Addr().IsLoopback()):
		return fmt.Errorf("--listen %s: must be an address of loopback, such as 127.0.0.1:8787; other hosts run their own quotad", f.listen)
	case f.listen != "":
		return f.TLS.Demand("listen", f.listen, "the Unix socket needs none")
	}
	return nil
}

// Listen opens the listeners. Clients of --listen with the same subject in their
// certificates are one client.
func (f *Flags) Listen(h *host.Host, log *slog.Logger) (listen.Server, error) {
	s := build(h, f.limits, log)
	if f.listen != "" {
		l, err := f.TLS.Listen(f.listen, "http/1.1", func(l net.Listener) net.Listener { return s.accept(l, listen.AnyTCP) })
		if err != nil {
			return nil, fmt.Errorf("--listen: %w", err)
		}
		s.Listeners = append(s.Listeners, l) // a connection has one call at a time
	}
	if f.socket != "" { // the last that can fail, for it takes the socket of another process
		l, err := listen.Unix(f.socket, *f.Group, log, func(l net.Listener) net.Listener {
			s.beside = func() ([]string, error) { return listen.Beside(l) }
			return s.accept(l, listen.Peer)
		})
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w; --socket= serves none", err)
			}
			return nil, errors.Join(fmt.Errorf("--socket: %w", err), s.Shutdown(context.Background())) // nothing runs
		}
		s.Listeners = append(s.Listeners, l)
	}
	return s, nil
}
