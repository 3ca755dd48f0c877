package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/api"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
)

// apiService is the way in over HTTP.
type apiService struct {
	socket, group, listen string
	files                 api.TCP
	limits                api.Limits
}

const maxConnections = 100_000

func (s *apiService) Register(set *pflag.FlagSet) {
	set.StringVar(&s.socket, "socket", "/run/quotad/quotad.sock", "`path` of the Unix socket, of mode 0660; empty: none")
	set.StringVar(&s.group, "group", "", "`group` that may use the socket, a name or a number; default: the group of this process")
	set.StringVar(&s.listen, "listen", "", "loopback `address` to serve with TLS too, such as 127.0.0.1:8787")
	set.StringVar(&s.files.Cert, "tls-cert", "", "`file` of the certificate of --listen")
	set.StringVar(&s.files.Key, "tls-key", "", "`file` of its key")
	set.StringVar(&s.files.ClientCA, "tls-client-ca", "", "`file` of the CA certificates that sign the clients' certificates")
	set.IntVar(&s.limits.Connections, "max-connections", 4096, "how many connections may be open; half of them for one user")
	set.IntVar(&s.limits.PerClient, "client-connections", 256, "how many connections and leases one process may have")
}

func (s *apiService) Check() error {
	switch {
	case s.socket == "" && s.listen == "":
		return errors.New("--socket is empty: give its path, or an address by --listen")
	case s.limits.Connections < 2 || s.limits.Connections > maxConnections:
		return fmt.Errorf("--max-connections %d: must be from 2 to %d", s.limits.Connections, maxConnections)
	case s.limits.PerClient < 1 || s.limits.PerClient > s.limits.Connections:
		return fmt.Errorf("--client-connections %d: must be from 1 to --max-connections, %d", s.limits.PerClient, s.limits.Connections)
	case s.listen != "":
		return s.files.Check(s.listen)
	case s.files != api.TCP{}:
		return errors.New("--tls-cert, --tls-key and --tls-client-ca are for --listen: give its address too")
	}
	return nil
}

func (s *apiService) Listen(h *host.Host, log *slog.Logger) (Server, error) {
	server := api.New(h, s.limits, log)
	var err error
	if s.socket != "" {
		err = server.ListenUnix(s.socket, s.group)
	}
	if err == nil && s.listen != "" {
		err = server.ListenTCP(s.listen, s.files)
	}
	if err != nil {
		_ = server.Shutdown(context.Background()) // nothing runs
		return nil, err
	}
	return server, nil
}
