//go:build e2e && linux

package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// kind is a change, and when it is seen to have taken effect.
type kind string

const (
	toJoin   kind = "join to first permit"
	toBorrow kind = "the same, all others having spent their shares"
	toClose  kind = "Close to regained share"
	toLeave  kind = "Shutdown to regained share"
	toCrash  kind = "crash to regained share"
	toCut    kind = "limit cut to last permit under the old limit"
	toRaise  kind = "limit raise to first use"
	toSpend  kind = "limit raise to use by the last instance"
)

var kinds = []kind{toJoin, toBorrow, toClose, toLeave, toCrash, toCut, toRaise, toSpend}

// promised returns the least and the most that the protocol makes of a kind, on
// a machine and a network that take no time.
func (k kind) promised() (least, most time.Duration) {
	const (
		ahead = protocol.AnnounceAhead
		sweep = 500 * time.Millisecond // how often etcd looks for leases that have run out
	)
	settle := quota.DefaultSettle
	switch k {
	case toClose, toBorrow: // the next window
		return 0, window
	case toLeave:
		least = 2*quota.DefaultClockError + ahead
	case toJoin, toRaise, toSpend: // when an instance learns of it
		return 0, 0
	case toCrash:
		// The lease was renewed a third of its time ago at the most.
		return leaseTTL*2/3 + settle, leaseTTL + sweep + settle + window
	default:
		// Who has not heard of it is not fresh.
		return 0, quota.DefaultFreshness
	}
	return least, least + window
}

// latencies are samples. It is safe for concurrent use.
type latencies struct {
	mu sync.Mutex
	of map[kind][]time.Duration
	// wrote is how often etcd wrote a provider's keys, by what was done.
	wrote map[string][]int
}

func (l *latencies) add(k kind, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[kind][]time.Duration{}
	}
	l.of[k] = append(l.of[k], took)
}

func (l *latencies) addWrites(by string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrote == nil {
		l.wrote = map[string][]int{}
	}
	l.wrote[by] = append(l.wrote[by], n)
}

var latencyMarks = marks{"<!-- made by TestLatencies: begin -->\n", "<!-- made by TestLatencies: end -->\n"}

// latencyHead is the table's: a column for each kind, and the protocol's ranges.
func latencyHead() string {
	names, rule, ranges := "| instances |", "| --- |", "| by the protocol |"
	for _, k := range kinds {
		least, most := k.promised()
		names += fmt.Sprintf(" %s |", k)
		rule += " ---: |"
		if ranges += " " + shown(least); most > least {
			ranges += " to " + shown(most)
		}
		ranges += " |"
	}
	return names + "\n" + rule + "\n" + ranges + "\n"
}

// shown is a time in hundredths of a second, or in milliseconds if it is short.
func shown(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func latencyKey(size int) string { return fmt.Sprintf("| %d |", size) }

// line returns the table's line for a size: the median, the worst, and the number
// of samples of each kind.
func (l *latencies) line(size int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := latencyKey(size)
	for _, k := range kinds {
		took := slices.Sorted(slices.Values(l.of[k]))
		if len(took) == 0 {
			line += " - |"
			continue
		}
		line += fmt.Sprintf(" %s, %s (%d) |", shown(median(took)), shown(took[len(took)-1]), len(took))
	}
	return line + "\n"
}

// median returns the median of sorted samples, of which there is one at least.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// write puts the line of a size into the table in a document. Those of other
// sizes stay.
func (l *latencies) write(file string, size int) error {
	return latencyMarks.rewrite(file, func(old string) string {
		sizes := []int{size}
		for line := range strings.Lines(old) {
			text, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " ")
			if n, err := strconv.Atoi(text); err == nil {
				sizes = append(sizes, n)
			}
		}
		slices.Sort(sizes)
		var keys []string
		for _, n := range slices.Compact(sizes) {
			keys = append(keys, latencyKey(n))
		}
		return latencyHead() + renew(old, keys, []string{l.line(size)})
	})
}
