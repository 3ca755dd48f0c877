package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/internal/webconfig"
	"github.com/quotient-limiter/quotient/internal/certs"
)

// certificates tells when the certificates that quotad presents run out. It reads the files
// for each scrape, as they may be replaced. Of a file that cannot be read there is no metric.
type certificates struct {
	files map[string]string // by flag
	desc  *prometheus.Desc
}

// newCertificates finds the files in the flags.
func newCertificates(set *pflag.FlagSet) *certificates {
	c := &certificates{map[string]string{}, prometheus.NewDesc("quotad_certificate_expiry_timestamp_seconds",
		"When the certificate that a flag names is no longer valid, as a Unix time.", []string{"flag"}, nil)}
	set.VisitAll(func(f *pflag.Flag) {
		if file := f.Value.String(); file != "" && (f.Name == "cert" || f.Name == "tls-cert" || f.Name == webconfig.Flag) {
			c.files[f.Name] = file
		}
	})
	return c
}

// Describe implements prometheus.Collector.
func (c *certificates) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *certificates) Collect(out chan<- prometheus.Metric) {
	for name, file := range c.files {
		if name == webconfig.Flag {
			file = webconfig.Certificate(file)
		}
		if at, err := certs.Expires(file); err == nil {
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(at.Unix()), name)
		}
	}
}
