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
	at       time.Time
	cpu      time.Duration
	sent     float64 // bytes to clients
	received float64 // bytes from clients
	events   float64 // sent to watchers
	puts     float64
	log      float64 // bytes written to its log
	database float64 // bytes of the file
	resident float64 // bytes of memory
	files    float64 // open, connections among them
	streams  float64 // of watches
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
	r.at = time.Now()
	var seconds float64
	for name, to := range map[string]*float64{
		"process_cpu_seconds_total":                     &seconds,
		"etcd_network_client_grpc_sent_bytes_total":     &r.sent,
		"etcd_network_client_grpc_received_bytes_total": &r.received,
		"etcd_debugging_mvcc_events_total":              &r.events,
		"etcd_mvcc_put_total":                           &r.puts,
		"etcd_disk_wal_write_bytes_total":               &r.log,
		"etcd_mvcc_db_total_size_in_bytes":              &r.database,
		"process_resident_memory_bytes":                 &r.resident,
		"process_open_fds":                              &r.files,
		"etcd_debugging_mvcc_watch_stream_total":        &r.streams,
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
	d.received -= before.received
	d.events -= before.events
	d.puts -= before.puts
	d.log -= before.log
	return d
}
