package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// identity tells calls whose they are: those of a process at the socket, or of a
// certificate. It ends the handshake of TLS for that.
type identity struct {
	credentials.TransportCredentials
}

// known is what calls learn of their connection.
type known struct {
	credentials.CommonAuthInfo
	client string
}

// AuthType implements credentials.AuthInfo.
func (known) AuthType() string { return "quotad" }

// ServerHandshake implements credentials.TransportCredentials. Its error closes the
// connection.
func (identity) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw, secured := c, credentials.NoSecurity
	if t, ok := c.(*tls.Conn); ok {
		if err := t.Handshake(); err != nil { // its deadline is set
			return nil, nil, err
		}
		state := t.ConnectionState()
		if state.NegotiatedProtocol != "h2" {
			return nil, nil, errors.New("the client does not speak HTTP/2")
		}
		raw, secured = t.NetConn(), credentials.PrivacyAndIntegrity
		if err := raw.(*listen.Conn).Identify(listen.Certificate(state.PeerCertificates[0].Subject.String())); err != nil {
			return nil, nil, err
		}
	}
	info := known{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: secured}}
	if counted, ok := raw.(*listen.Conn); ok {
		info.client = counted.Client()
	}
	return c, info, nil
}

// clientOf names the client that made a call.
func clientOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(known); ok {
			return info.client
		}
	}
	return ""
}
