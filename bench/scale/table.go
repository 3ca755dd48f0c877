package main

import (
	"fmt"
	"math"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// sizes returns the tables of all sizes.
func sizes(o options, results []result) []*report.Section {
	storm := &report.Section{Title: "All join at once"}
	storm.Text("Times since the order to join, with the settle time of 3 s unless --settle says otherwise. Each instance reads every other's key once, in its listing or as an event; " +
		"more events than half the square of the instances were sent to watches that were being closed, or are of instances that registered again. The load is that of other programs, in the minute before.")
	var rows [][]string
	for _, r := range results {
		values := float64(r.n) * float64(r.n)
		rows = append(rows, []string{count(r.n), fmt.Sprintf("%.1f", r.load), seconds(r.registered), seconds(r.active), count(int(r.retries)), count(int(r.again)),
			seconds(r.storm.cpu), megabytes(r.storm.sent), megabytes(r.storm.received), count(int(r.storm.events)), count(int(r.storm.puts)),
			seconds(r.stormCPU), micros(float64(r.stormCPU) / values), micros(float64(r.applying) / max(1, float64(r.stormEvents)))})
	}
	storm.Table([]string{"instances", "load", "last one registered", "all active", "joins tried again", "registered again", "etcd: processor time", "sent", "received", "events", "writes",
		"fleet: processor time", "for each key read", "time in a limiter, for each event"}, rows)

	steady := &report.Section{Title: "Nothing happens"}
	steady.Text("For %v: probes, leases, and a report of each instance in 30 s. No limiter is asked for permits.", o.steady)
	rows = nil
	for _, r := range results {
		s := r.elapsed.Seconds()
		rows = append(rows, []string{count(r.n), fmt.Sprintf("%.3f", r.steady.cpu.Seconds()/s), megabytes(r.steady.resident), count(int(r.steady.files)), count(int(r.steady.streams)),
			rate(r.steady.sent / s), rate(r.steady.received / s), fmt.Sprintf("%.1f/s", r.steady.puts/s), rate(r.steady.log / s), megabytes(r.steady.database),
			fmt.Sprintf("%.3f%%", 100*r.steadyCPU.Seconds()/s/float64(r.n)), fmt.Sprintf("%.2f MB", float64(r.resident)/1e6/float64(r.n))})
	}
	steady.Table([]string{"instances", "etcd: processors used", "memory", "open files", "watch streams", "sent", "received", "writes", "log", "database",
		"an instance: of a processor", "memory"}, rows)

	change := &report.Section{Title: "A limit is set"}
	change.Text("%d times, one a second. Time from the operator's call until an instance's limiter has applied it, and until the last one's has. Events, bytes and processor time are what comes on top of what goes on anyway: mostly, every instance reports that it has applied it.", o.changes)
	rows = nil
	for _, r := range results {
		k, s := float64(r.changes), r.spent.Seconds()/r.elapsed.Seconds()
		rows = append(rows, []string{count(r.n), millis(quantile(r.each, 0.5)), millis(quantile(r.each, 0.99)), millis(quantile(r.last, 0.5)), millis(quantile(r.last, 0.99)),
			fmt.Sprintf("%.0f", (r.change.events-s*r.steady.events)/k), fmt.Sprintf("%.0f kB", (r.change.sent-s*r.steady.sent)/k/1e3),
			fmt.Sprintf("%.0f ms", 1e3*(r.change.cpu.Seconds()-s*r.steady.cpu.Seconds())/k),
			micros((float64(r.changeCPU) - s*float64(r.steadyCPU)) / k / float64(r.n))})
	}
	change.Table([]string{"instances", "an instance: p50", "p99", "the last one: p50", "p99", "events", "sent", "etcd: processor time", "an instance: processor time"}, rows)
	return []*report.Section{storm, steady, change}
}

// constants returns the table of what single calls cost.
func constants(rows []row) []*report.Section {
	s := &report.Section{Title: "What single calls cost"}
	s.Text("%d connections, which call as fast as they can. The client's part is etcd's own client alone.", connections)
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.what, count(r.calls), micros(float64(r.etcd)), fmt.Sprintf("%.0f B", r.sent), fmt.Sprintf("%.0f B", r.received), micros(float64(r.client))})
	}
	s.Table([]string{"each", "calls", "etcd: processor time", "sent", "received", "client: processor time"}, cells)
	return []*report.Section{s}
}

// quantile returns the q-quantile of sorted durations, by nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func count(n int) string               { return fmt.Sprint(n) }
func seconds(d time.Duration) string   { return fmt.Sprintf("%.2f s", d.Seconds()) }
func millis(d time.Duration) string    { return fmt.Sprintf("%.0f ms", d.Seconds()*1e3) }
func micros(ns float64) string         { return fmt.Sprintf("%.1f µs", ns/1e3) }
func megabytes(bytes float64) string   { return fmt.Sprintf("%.1f MB", bytes/1e6) }
func rate(bytesASecond float64) string { return fmt.Sprintf("%.1f kB/s", bytesASecond/1e3) }
