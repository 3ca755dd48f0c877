package main

import (
	"log/slog"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/envoy"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
)

// envoyService is the way in for Envoys.
type envoyService struct{ envoy.Flags }

// leaver is a Server that ends something before the share goes to others.
type leaver interface{ Leave() }

func (s *envoyService) Listen(h *host.Host, log *slog.Logger) (Server, error) {
	server, err := s.Flags.Listen(h, log)
	if server == nil {
		return nil, err
	}
	return server, err
}
