package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// results are the medians of a run, by the full name of a case and the unit.
type results struct {
	names  []string // in the order of the run
	values map[string]map[string][]float64
}

// read reads lines of Go's benchmarks.
func read(text []byte) (*results, error) {
	r := &results{values: map[string]map[string][]float64{}}
	reader := benchfmt.NewReader(bytes.NewReader(text), "RESULTS.txt")
	for reader.Scan() {
		line, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := strings.ReplaceAll(string(line.Name), "_", " ")
		if i := strings.LastIndexByte(name, '-'); i > 0 && strings.Trim(name[i+1:], "0123456789") == "" {
			name = name[:i] // the processors
		}
		if r.values[name] == nil {
			r.names = append(r.names, name)
			r.values[name] = map[string][]float64{}
		}
		for _, v := range line.Values {
			unit := cmp.Or(v.OrigUnit, v.Unit)
			r.values[name][unit] = append(r.values[name][unit], cmp.Or(v.OrigValue, v.Value))
		}
	}
	return r, reader.Err()
}

// of returns the median of a case, or NaN.
func (r *results) of(name, unit string) float64 {
	all := slices.Sorted(slices.Values(r.values[name][unit]))
	if len(all) == 0 {
		return math.NaN()
	}
	return all[len(all)/2]
}

// labels returns the values of a key of the names that begin so and end so.
func (r *results) labels(prefix, suffix string) (labels []string) {
	for _, name := range r.names {
		if rest, is := strings.CutPrefix(name, prefix); is {
			if label, is := strings.CutSuffix(rest, suffix); is {
				labels = append(labels, label)
			}
		}
	}
	return labels
}

// table is a table of the page.
type table struct {
	name, part string // part: the one whose command makes it
	head       string
	rows       func(r *results) [][]string
	optional   bool // cells may be empty
}

// render returns the table, with the command that makes it. Each table has a row, and each cell
// that is not optional a number.
func (t *table) render(r *results) (string, error) {
	var b strings.Builder
	heads := strings.Split(t.head, " | ")
	fmt.Fprintf(&b, "| %s |\n| --- |%s\n", t.head, strings.Repeat(" ---: |", len(heads)-1))
	rows := t.rows(r)
	if len(rows) == 0 {
		return "", fmt.Errorf("the table %s has no row", t.name)
	}
	for _, row := range rows {
		if slices.Contains(row, "") && !t.optional {
			return "", fmt.Errorf("the table %s has an empty cell: %q", t.name, row)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	var also []string // what further runs of loadgen have beside the first one's flags
	for i := range parts {
		if p := &parts[i]; strings.Contains(" "+t.part+" ", " "+p.name+" ") {
			if first := slices.IndexFunc(parts, func(o part) bool { return o.name == p.name }); first < i {
				also = append(also, "`"+beside(parts[first].line, p.line)+"`")
				continue
			}
			env := p.env
			if env != "" {
				env += " "
			}
			line := strings.NewReplacer("^$", "'^$'", "Granted|Refused", "'Granted|Refused'", "Waiting|Boundary", "'Waiting|Boundary'").Replace(p.line)
			fmt.Fprintf(&b, "\n<sub>`%s%s`</sub>\n", env, line)
		}
	}
	if len(also) > 0 {
		fmt.Fprintf(&b, "\n<sub>and with %s</sub>\n", strings.Join(also, ", "))
	}
	return b.String(), nil
}

// beside returns the words of a line that another one lacks.
func beside(first, line string) string {
	had := strings.Fields(first)
	return strings.Join(slices.DeleteFunc(strings.Fields(line), func(w string) bool { return slices.Contains(had, w) }), " ")
}

// number prints a value, scaled, with so many decimals; a value that is not there is empty.
func number(v, scale float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	text := fmt.Sprintf("%.*f", decimals, v*scale)
	if decimals > 0 {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// show is how the page calls a limiter: the project's own are bold.
func show(label string) string {
	label = peer.Label(label)
	if rest, is := strings.CutPrefix(label, "quotient"); is {
		return "**Quotient**" + rest
	}
	return label
}

var tables = []table{
	{name: "calls", part: "calls java", optional: true, head: "call | granted, ns | of floor | 1,000 goroutines, of floor | refused, of floor", rows: func(r *results) (rows [][]string) {
		for _, l := range r.labels("Granted/call=", "/goroutines=1") {
			one, many := "Granted/call="+l+"/goroutines=1", "Granted/call="+l+"/goroutines=1000"
			refused := r.of("Refused/call="+l+"/goroutines=1", "of-floor")
			rows = append(rows, []string{show(l), number(r.of(one, "cpu-ns/op"), 1, 0), number(r.of(one, "of-floor"), 1, 2), number(r.of(many, "of-floor"), 1, 2), number(refused, 1, 2)})
		}
		for _, l := range r.labels("Java/call=granted", "") {
			granted, refused := "Java/call=granted"+l, "Java/call=refused"+l
			rows = append(rows, []string{l + ", Java", number(r.of(granted, "ns/op"), 1, 0), number(r.of(granted, "of-floor"), 1, 2), "", number(r.of(refused, "of-floor"), 1, 2)})
		}
		return rows
	}},
	{name: "waiting", part: "waiting", head: "way to wait | bytes each | CPU µs each | of floor | served in another window, %", rows: func(r *results) (rows [][]string) {
		floor := r.of("Waiting/by=floor: goroutines on channels", "cpu-ns/waiter")
		for _, l := range r.labels("Waiting/by=", "") {
			n := "Waiting/by=" + l
			cpu := r.of(n, "cpu-ns/waiter")
			rows = append(rows, []string{show(l), number(r.of(n, "B/waiter"), 1, 0), number(cpu, 1e-3, 2), number(cpu/floor, 1, 2), number(r.of(n, "misplaced-%"), 1, 1)})
		}
		return rows
	}},
	{name: "parked", part: "parked", head: "a goroutine that waits | bytes", rows: func(r *results) (rows [][]string) {
		for _, l := range r.labels("Parked/by=", "") {
			rows = append(rows, []string{show(l), number(r.of("Parked/by="+l, "B/waiter"), 1, 0)})
		}
		return rows
	}},
	{name: "boundary", part: "waiting", head: "waiters | processors | first, p50 µs | first, p99 µs | last, p50 µs", rows: func(r *results) (rows [][]string) {
		for _, l := range r.labels("Boundary/waiters=", "") {
			n := "Boundary/waiters=" + l
			count, busy, _ := strings.Cut(l, "/busy=")
			rows = append(rows, []string{count, map[string]string{"true": "compute", "false": "idle"}[busy], number(r.of(n, "first-p50-µs"), 1, 0), number(r.of(n, "first-p99-µs"), 1, 0), number(r.of(n, "last-p50-µs"), 1, 0)})
		}
		return rows
	}},
	{name: "central", part: "central", head: "counter | permits a second | p50 µs | p99 µs | CPU µs, callers and server | of floor | after the server is killed, a second", rows: func(r *results) (rows [][]string) {
		cpu := func(l string) float64 {
			return r.of("Central/counter="+l, "cpu-ns/permit") + r.of("Central/counter="+l, "server-cpu-ns/permit")
		}
		for _, l := range r.labels("Central/counter=", "") {
			n := "Central/counter=" + l
			rows = append(rows, []string{
				show(l), number(r.of(n, "permits/s"), 1, 0), number(r.of(n, "p50-ns"), 1e-3, 2), number(r.of(n, "p99-ns"), 1e-3, 2),
				number(cpu(l), 1e-3, 2), number(cpu(l)/cpu("floor: PING"), 1, 3), number(r.of(n, "after-permits/s"), 1, 0),
			})
		}
		return rows
	}},
	{name: "socket", part: "socket", head: "counter, connections | permits a second | p50 µs | CPU µs, callers and server | of floor", rows: func(r *results) (rows [][]string) {
		cpu := func(n string) float64 { return r.of(n, "cpu-ns/permit") + r.of(n, "server-cpu-ns/permit") }
		for _, l := range r.labels("Socket/counter=", "") {
			n := "Socket/counter=" + l
			name, connections, _ := strings.Cut(l, "/connections=")
			floor := "Socket/counter=floor: PING/connections=" + connections
			rows = append(rows, []string{show(name) + ", " + connections, number(r.of(n, "permits/s"), 1, 0), number(r.of(n, "p50-ns"), 1e-3, 0), number(cpu(n), 1e-3, 1), number(cpu(n)/cpu(floor), 1, 2)})
		}
		return rows
	}},
	{name: "uneven load", part: "uneven", optional: true, head: "load | used, % | used without lending, % | largest window, % of the limit | writes into etcd a second | a window's first loan after, ms, p50", rows: func(r *results) (rows [][]string) {
		for _, u := range uneven {
			on, off := "Uneven/load="+u.load+"/lend=on", "Uneven/load="+u.load+"/lend=off"
			if math.IsNaN(r.of(on, "used-%")) {
				continue
			}
			first := "" // where nothing moves, loans come before calls lack them, but after a stall
			if !u.alone {
				first = number(r.of(on, "first-loan-p50-ms"), 1, 1)
			}
			rows = append(rows, []string{u.load, number(r.of(on, "used-%"), 1, 1), number(r.of(off, "used-%"), 1, 1), number(r.of(on, "most-%"), 1, 1),
				number(r.of(on, "etcd-writes/s"), 1, 0), first})
		}
		return rows
	}},
	{name: "keys", part: "keys", optional: true, head: "limit by key | a permit, ns | of floor | bytes for a key", rows: func(r *results) (rows [][]string) {
		floor := r.of("Keys/by=floor: monotonic read + add", "ns/permit")
		for _, l := range r.labels("Keys/by=", "") {
			permit, bytes := r.of("Keys/by="+l, "ns/permit"), number(r.of("Keys/by="+l, "B/key"), 1, 0)
			if bytes == "0" {
				bytes = ""
			}
			rows = append(rows, []string{show(l), number(permit, 1, 0), number(permit/floor, 1, 1), bytes})
		}
		return rows
	}},
	{name: "key counts", part: "fleet-keys", head: "of 10 instances, 200 keys of 50/s | ", rows: func(r *results) [][]string {
		return [][]string{
			{"windows of keys that callers counted", number(r.of("FleetKeys", "windows"), 1, 0)},
			{"of these, over the limit", number(r.of("FleetKeys", "over"), 1, 0)},
			{"used of the limit, %", number(r.of("FleetKeys", "used-%"), 1, 1)},
			{"writes into etcd a second", number(r.of("FleetKeys", "etcd-writes/s"), 1, 1)},
		}
	}},
	{name: "overshoot", part: "overshoot", head: "4 processes / 8 | used, % | used after the kill, % | most in a second of the clock, % | most in any second, % | seconds over", rows: func(r *results) (rows [][]string) {
		var labels []string
		for _, n := range r.names {
			if rest, is := strings.CutPrefix(n, "Overshoot/peer="); is {
				label, _, _ := strings.Cut(rest, "/n=")
				if !slices.Contains(labels, label) {
					labels = append(labels, label)
				}
			}
		}
		slices.SortStableFunc(labels, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
		for _, l := range labels {
			both := func(unit string, decimals int) string {
				var cells []string
				for _, n := range []string{"4", "8"} {
					if text := number(r.of("Overshoot/peer="+l+"/n="+n, unit), 1, decimals); text != "" {
						cells = append(cells, text)
					}
				}
				return strings.Join(cells, " / ")
			}
			rows = append(rows, []string{show(l), both("used-%", 0), both("used-after-kill-%", 0), both("most-%", 1), both("most-any-%", 1), both("over", 0)})
		}
		return rows
	}},
}

// place sorts the limiters: Quotient, those that share a server, those of one process.
func place(label string) int {
	switch {
	case strings.HasPrefix(label, "quotient"):
		return 0
	case strings.HasPrefix(label, "redis"), strings.HasPrefix(label, "gubernator"):
		return 1
	default:
		return 2
	}
}
