package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

func header(w io.Writer) {
	fmt.Fprintf(w, "%7s %9s %9s %6s %5s %8s %10s  %s\n", "time", "produced", "processed", "again", "dead", "lag", "provider",
		"consumers: share, partitions (paused), backlog")
}

// row shows how things stand now. The provider's column is its last whole window.
func (d *demo) row() {
	t := d.parts.provider.Totals()
	dead, _ := d.letters.counts()
	produced := d.producer.acked.Load()
	var last int64
	now := time.Now().Truncate(d.limit.Window)
	for _, w := range d.parts.provider.Recent(3) {
		if w.Start.Equal(now.Add(-d.limit.Window)) {
			last = w.Records
		}
	}
	var members []string
	for i, m := range d.members {
		r, runs := m.report()
		if !runs {
			continue
		}
		s := r.Member
		members = append(members, fmt.Sprintf("%d: %d, %d (%d), %d", i+1, r.Share, s.Partitions, s.Paused, s.Backlog))
	}
	fmt.Fprintf(d.out, "%5.1f s %9d %9d %6d %5d %8d %10d  %s\n", time.Since(d.began).Seconds(), produced, t.Processed, t.Repeated, dead,
		max(produced-t.Processed-dead, 0), last, strings.Join(members, " | "))
}
