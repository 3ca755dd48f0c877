package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokersTLS says how brokers are reached. Its flags are spelled as those of
// etcd, with a prefix.
type brokersTLS struct {
	on               bool
	cacert, crt, key string
}

func (b *brokersTLS) register(set *pflag.FlagSet) {
	set.BoolVar(&b.on, "brokers-tls", false, "speak TLS with the brokers; given by the next ones too")
	set.StringVar(&b.cacert, "brokers-cacert", "", "`FILE` of certificates that sign the brokers'; default the system's")
	set.StringVar(&b.crt, "brokers-cert", "", "`FILE` of the client's certificate")
	set.StringVar(&b.key, "brokers-key", "", "`FILE` of the client's key")
}

func (b *brokersTLS) check(brokers bool) error {
	b.on = b.on || b.cacert != "" || b.crt != "" || b.key != ""
	if b.on && !brokers {
		return usagef("--brokers-tls and its files are for brokers of yours: give --brokers too")
	}
	if (b.crt == "") != (b.key == "") {
		return usagef("--brokers-cert and --brokers-key belong together")
	}
	return nil
}

// kafka returns the options by which a client reaches the brokers.
func (c *config) kafka() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(c.brokers...), kgo.ClientID("quotient-kafka-consumer")}
	b := c.brokersTLS
	if !b.on {
		return opts, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.cacert != "" {
		pem, err := os.ReadFile(b.cacert)
		if err != nil {
			return nil, usagef("--brokers-cacert: %v", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--brokers-cacert: %s holds no certificate in PEM", b.cacert)
		}
	}
	if b.crt != "" {
		pair, err := tls.LoadX509KeyPair(b.crt, b.key)
		if err != nil {
			return nil, fmt.Errorf("--brokers-cert and --brokers-key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return append(opts, kgo.DialTLSConfig(t)), nil
}
