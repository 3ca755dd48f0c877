package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// reading is what etcd had done at one moment, by its own counters.
type reading struct {
	cpu      time.Duration
	sent     float64 // bytes to clients
	puts     float64
	database float64 // bytes of the file
	resident float64 // bytes of memory
}

// readEtcd reads the counters of the etcd at an endpoint.
func readEtcd(ctx context.Context, endpoint string) (r reading, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/metrics", nil)
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return r, err
	}
	var seconds float64
	for name, to := range map[string]*float64{
		"process_cpu_seconds_total":                 &seconds,
		"etcd_network_client_grpc_sent_bytes_total": &r.sent,
		"etcd_mvcc_put_total":                       &r.puts,
		"etcd_mvcc_db_total_size_in_bytes":          &r.database,
		"process_resident_memory_bytes":             &r.resident,
	} {
		f := families[name]
		if f == nil || len(f.Metric) != 1 {
			return r, fmt.Errorf("etcd tells no %s", name)
		}
		m := f.Metric[0]
		*to = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	r.cpu = time.Duration(seconds * float64(time.Second))
	return r, nil
}

// since returns what was done between two readings; gauges are as they are now.
func (r reading) since(before reading) reading {
	d := r
	d.cpu -= before.cpu
	d.sent -= before.sent
	d.puts -= before.puts
	return d
}
