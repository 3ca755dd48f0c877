package jvm

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strings"

	bench "github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// floor is the benchmark that the others are compared with.
const floor = "floorNanoTimeAndAdd"

// Run measures and reports. The samples are for the raw results.
func Run(ctx context.Context, o bench.Options) (*report.Section, *bench.Samples, error) {
	sec, s := &report.Section{Title: "Limiters for Java"}, bench.NewSamples()
	if program := missing(); program != "" {
		sec.Text("Left out: there is no %s on this machine (Debian: apt-get install openjdk-17-jdk-headless maven).", program)
		return sec, s, nil
	}
	if o.Quick {
		sec.Text("Left out of a quick run: starting virtual machines takes longer than that.")
		return sec, s, nil
	}
	dir, err := os.MkdirTemp("", "bench-java-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.Log("java: maven gets and compiles")
	classpath, err := build(ctx, dir)
	if err != nil { // most likely there is no way to Maven Central
		reason, _, _ := strings.Cut(err.Error(), "\n")
		sec.Text("Left out: %s", reason)
		return sec, s, nil
	}
	threads := []int{1, 2, 64}
	vm := ""
	for _, n := range threads {
		o.Log("java: JMH, %d threads", n)
		scores, err := measure(ctx, dir, classpath, n)
		if err != nil {
			return nil, nil, err
		}
		for _, sc := range scores {
			vm = sc.VMName + " " + sc.JDKVersion
			name := key(sc.Benchmark[strings.LastIndexByte(sc.Benchmark, '.')+1:], n)
			for _, v := range slices.Concat(sc.PrimaryMetric.RawData...) {
				s.Add(name, bench.WallUnit, v)
			}
		}
	}
	describe(sec, s, vm, threads)
	return sec, s, nil
}

func key(name string, threads int) string { return fmt.Sprintf("java/%s/threads=%d", name, threads) }

func describe(sec *report.Section, s *bench.Samples, vm string, threads []int) {
	sec.Text("By JMH on %s (%s): nanoseconds that pass in a thread for a call, median of four iterations after two to warm up, and how many "+
		"times the floor *System.nanoTime + AtomicLong* with as many threads. These limiters hold a limit for one process, and wait by "+
		"blocking a thread.", vm, versions())
	header := []string{"call"}
	for _, n := range threads {
		header = append(header, fmt.Sprintf("%d threads", n), "of floor")
	}
	var rows [][]string
	for _, name := range names() {
		row := []string{name}
		for _, n := range threads {
			v := s.Median(key(name, n), bench.WallUnit)
			row = append(row, fmt.Sprintf("%.1f", v), fmt.Sprintf("%.2f", v/s.Median(key(floor, n), bench.WallUnit)))
		}
		rows = append(rows, row)
	}
	sec.Table(header, rows)
}

// names are the benchmarks, in the order of the report.
func names() []string {
	all := []string{floor}
	for _, kind := range []string{"granted", "refused"} {
		for _, l := range []string{"Guava", "Bucket4j", "Resilience4jAtomic", "Resilience4jSemaphore"} {
			all = append(all, kind+l)
		}
	}
	return all
}

// versions names what the project depends on, with versions.
func versions() string {
	text, err := project.ReadFile("project/pom.xml")
	if err != nil {
		return ""
	}
	var pom struct {
		Dependencies []struct {
			Artifact string `xml:"artifactId"`
			Version  string `xml:"version"`
		} `xml:"dependencies>dependency"`
	}
	if err := xml.Unmarshal(text, &pom); err != nil {
		return ""
	}
	var all []string
	for _, d := range pom.Dependencies {
		if !strings.HasPrefix(d.Artifact, "jmh") {
			all = append(all, d.Artifact+" "+d.Version)
		}
	}
	return strings.Join(all, ", ")
}
