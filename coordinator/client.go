package coordinator

import (
	"crypto/tls"
	"fmt"

	"github.com/quotient-limiter/quotient/internal/certs"
)

// ClientTLS returns a TLS configuration for clientv3.Config: the server is checked
// against the authorities in the file ca, and this process shows the certificate in the
// files cert and key. These two are read for every connection, so a certificate that is
// rotated on disk needs no restart. The file ca is read once: put the old and the new
// authority into it before etcd's certificates change authority. An empty ca means the
// system's authorities; cert and key may both be empty.
func ClientTLS(ca, cert, key string) (*tls.Config, error) {
	c, err := certs.Client(ca, cert, key)
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	return c, nil
}
