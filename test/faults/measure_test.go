//go:build e2e && linux

package faults

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// span is when something happened, by true time, in nanoseconds.
type span struct{ from, to int64 }

// result is one line of the table.
type result struct {
	name, outage, fault string
	again               bool // this is the second time: at first too little was issued, or too late
	windows             int  // from the first after the fleet was active until the end
	over                int  // of them, with more permits than the limit
	ratio               float64
	arrivedOver         int           // windows of the provider's clock with more arrivals than the limit
	arrivedRatio        float64       // the largest
	settled             float64       // utilisation of the windows that the fault does not touch
	dip                 float64       // the lowest utilisation of the others
	away                float64       // that of those among them which end before etcd was started again
	recovered           time.Duration // from the fault's end until all windows are full again; -1: never
	promise             string
	failed              []string
	slow                []string // what a machine that is too busy would fail at as well
	trace               string   // what the traces say
	still               []string // when this machine stood still, as the witness saw it
	used                []int64  // permits of each of the windows
}

// recoverWithin is S' + S + 2 windows.
const recoverWithin = 2500*time.Millisecond + 3*time.Second + 2*window

const (
	// full is the least mean utilisation of settled windows; lent is that where half of it
	// must be borrowed.
	full, lent = 0.99, 0.95
	// back is the least utilisation of a window after the recovery.
	back = 0.95
)

// measure makes the numbers of a record. limit is per window; active is from
// when all of the fleet was, fault when the fault lasted, restarted when etcd was started
// again (0: not known), end when the fleet was told to end. Whole windows count.
func measure(r *record, limit int64, active int64, fault span, restarted, end int64) result {
	var m result
	w := int64(window)
	first, last := (active+w-1)/w*w, end/w*w-w
	m.dip, m.away, m.recovered = 1, 1, -1
	for _, n := range r.Issued { // also before and after
		m.ratio = max(m.ratio, float64(n)/float64(limit))
		if n > limit {
			m.over++
		}
	}
	for _, n := range r.Arrived {
		m.arrivedRatio = max(m.arrivedRatio, float64(n)/float64(limit))
		if n > limit {
			m.arrivedOver++
		}
	}
	used := func(start int64) float64 { return float64(r.Issued[start]) / float64(limit) }
	// The last window that is not full, since the fault began, ends the recovery.
	if fault.to != 0 && used(last) >= back {
		m.recovered = 0
		for start := fault.from / w * w; start < last; start += w {
			if used(start) < back {
				m.recovered = time.Duration(max(0, start+w-fault.to))
			}
		}
	}
	sum, n := 0.0, 0
	for start := first; start <= last; start += w {
		m.windows++
		m.used = append(m.used, r.Issued[start])
		touched := fault.to != 0 && start+w > fault.from && start < fault.to+int64(max(0, m.recovered))
		if touched {
			m.dip = min(m.dip, used(start))
			if start+w <= restarted {
				m.away = min(m.away, used(start))
			}
			continue
		}
		sum += min(1, used(start))
		n++
	}
	m.settled = math.NaN()
	if n > 0 {
		m.settled = sum / float64(n)
	}
	return m
}

// head and line are the table's.
func head() string {
	return "| scenario | outage rule | windows | over, worst | arrivals: over, worst | settled utilisation | dip | recovered after | promise |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
}

// key begins a line, and tells it from others.
func (m *result) key() string { return fmt.Sprintf("| %s | %s |", m.name, m.outage) }

func (m *result) line() string {
	dip, recovered := fmt.Sprintf("%.2f", m.dip), fmt.Sprintf("%.1f s", m.recovered.Seconds())
	if m.fault == "" {
		dip, recovered = "-", "-"
	} else if m.recovered < 0 {
		recovered = "never"
	}
	verdict := strings.TrimPrefix(m.promise+": held", "never over: ")
	if len(m.failed)+len(m.slow) > 0 {
		verdict = m.promise + ": BROKEN"
	}
	if m.again {
		verdict += ", played again"
	}
	return m.key() + fmt.Sprintf(" %d | %d, %.3f | %d, %.3f | %.3f | %s | %s | %s |\n",
		m.windows, m.over, m.ratio, m.arrivedOver, m.arrivedRatio, m.settled, dip, recovered, verdict)
}
