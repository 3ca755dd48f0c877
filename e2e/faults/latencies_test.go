//go:build e2e && linux

package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// kind is a change, and when it is seen to have taken effect.
type kind string

const (
	toJoin  kind = "join to first permit"
	toLeave kind = "plain leave (unannounced) to regained share"
	toCrash kind = "crash to regained share"
	toCut   kind = "limit cut to last permit under the old limit"
	toRaise kind = "limit raise to first use"
)

var kinds = []kind{toJoin, toLeave, toCrash, toCut, toRaise}

// promised returns the least and the most that the protocol makes of a kind, on
// a machine and a network that take no time.
func (k kind) promised() (least, most time.Duration) {
	const (
		ahead = 200 * time.Millisecond // coordinator's announceAhead
		sweep = 500 * time.Millisecond // how often etcd looks for leases that have run out
	)
	settle := quota.DefaultSettle
	switch k {
	case toJoin:
		least = settle + 2*quota.DefaultClockError + ahead
	case toLeave, toRaise:
		least = settle
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
}

func (l *latencies) add(k kind, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[kind][]time.Duration{}
	}
	l.of[k] = append(l.of[k], took)
}

var latencyMarks = marks{"<!-- made by TestLatencies: begin -->\n", "<!-- made by TestLatencies: end -->\n"}

func latencyHead() string {
	return "| change | instances | samples | median | worst | by the protocol |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
}

func latencyKey(k kind, size int) string { return fmt.Sprintf("| %s | %d |", k, size) }

// lines returns the table's lines for a size, in the order of the kinds.
func (l *latencies) lines(size int) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range kinds {
		took := slices.Sorted(slices.Values(l.of[k]))
		if len(took) == 0 {
			continue
		}
		least, most := k.promised()
		lines = append(lines, latencyKey(k, size)+fmt.Sprintf(" %d | %.2f s | %.2f s | %.2f s to %.2f s |\n", len(took),
			took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), least.Seconds(), most.Seconds()))
	}
	return lines
}

// write puts the lines of a size into the table in a document. Those of other
// sizes stay.
func (l *latencies) write(file string, size int) error {
	lines := l.lines(size)
	return latencyMarks.rewrite(file, func(old string) string {
		sizes := []int{size}
		for line := range strings.Lines(old) {
			for _, k := range kinds {
				rest, ok := strings.CutPrefix(line, fmt.Sprintf("| %s | ", k))
				text, _, _ := strings.Cut(rest, " ")
				if n, err := strconv.Atoi(text); ok && err == nil {
					sizes = append(sizes, n)
				}
			}
		}
		slices.Sort(sizes)
		var keys []string
		for _, k := range kinds {
			for _, n := range slices.Compact(slices.Clone(sizes)) {
				keys = append(keys, latencyKey(k, n))
			}
		}
		return latencyHead() + renew(old, keys, lines)
	})
}
