package main

import (
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// Each certificate that a flag names has a metric, by what its file holds at the scrape.
func TestCertificatesRunOut(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	want, err := certs.Expires(cert)
	if err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("quotad", pflag.ContinueOnError)
	new(listen.TLS).Register(set)
	new(metrics).Register(set)
	etcd := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	etcdflags.Register(etcd)
	set.AddFlagSet(etcd)
	if err := set.Parse([]string{"--cert", cert, "--tls-cert", cert, "--web.config.file", webConfig(t, cert, key, "")}); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(newCertificates(set))
	found := func() map[string]float64 {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				by[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		return by
	}
	by := found()
	for _, flag := range []string{"cert", "tls-cert", "web.config.file"} {
		if by[flag] != float64(want.Unix()) {
			t.Errorf("--%s runs out at %v, want %d", flag, by[flag], want.Unix())
		}
	}
	if len(by) != 3 {
		t.Errorf("there are %v", by)
	}
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if by := found(); len(by) != 0 {
		t.Errorf("of a file that holds no certificate there are %v", by)
	}
}
