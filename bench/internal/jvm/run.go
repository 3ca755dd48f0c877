// Package jvm measures the limiters that Java programs use, by JMH, in a Java
// virtual machine of its own. Maven gets them from Maven Central.
package jvm

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

//go:embed project
var project embed.FS

// floor is the benchmark that the others are compared with.
const floor = "floorNanoTimeAndAdd"

// Run measures and reports. The section names missing programs.
func Run(ctx context.Context, o measure.Options) (*report.Section, error) {
	sec := &report.Section{Title: "Limiters for Java"}
	if o.Quick {
		sec.Text("Left out of a quick run: starting virtual machines takes longer than that.")
		return sec, nil
	}
	dir, err := os.MkdirTemp("", "bench-java-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.Log("java: maven gets and compiles")
	source, err := fs.Sub(project, "project")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, source); err != nil {
		return nil, err
	}
	err = run(ctx, dir, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath")
	if err != nil { // there is no Maven, no JDK, or no way to Maven Central
		reason, _, _ := strings.Cut(err.Error(), "\n")
		sec.Text("Left out: %s", reason)
		return sec, nil
	}
	o.Log("java: JMH")
	scores, err := score(ctx, dir)
	if err != nil {
		return nil, err
	}
	vm := ""
	for _, sc := range scores {
		vm = sc.VMName + " " + sc.JDKVersion
		for _, v := range slices.Concat(sc.PrimaryMetric.RawData...) {
			o.Samples.Add("java/"+sc.Benchmark[strings.LastIndexByte(sc.Benchmark, '.')+1:], measure.WallUnit, v)
		}
	}
	describe(sec, o.Samples, vm)
	return sec, nil
}

// result is what JMH says of one benchmark.
type result struct {
	Benchmark     string
	JDKVersion    string `json:"jdkVersion"`
	VMName        string `json:"vmName"`
	PrimaryMetric struct {
		RawData [][]float64 // nanoseconds a call, by fork and iteration
	}
}

// score runs every benchmark, with one thread.
func score(ctx context.Context, dir string) (results []result, err error) {
	classpath, err := os.ReadFile(filepath.Join(dir, "classpath"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "scores.json")
	err = run(ctx, dir, "java", "-cp", filepath.Join(dir, "target", "classes")+string(os.PathListSeparator)+strings.TrimSpace(string(classpath)),
		"org.openjdk.jmh.Main", "-f", "1", "-wi", "2", "-w", "250ms", "-i", "4", "-r", "150ms", "-rf", "json", "-rff", file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return results, json.Unmarshal(text, &results)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // maven or java
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out[max(0, len(out)-1000):])
	}
	return nil
}

func describe(sec *report.Section, s measure.Samples, vm string) {
	sec.Text("By JMH on %s (%s): nanoseconds that pass in one thread for a call, median of four iterations after two to warm up, and how many "+
		"times the floor *System.nanoTime + AtomicLong*. These limiters hold a limit for one process, and wait by "+
		"blocking a thread.", vm, versions())
	var rows [][]string
	for _, name := range names() {
		v := s.Median("java/"+name, measure.WallUnit)
		rows = append(rows, []string{name, fmt.Sprintf("%.1f", v), fmt.Sprintf("%.2f", v/s.Median("java/"+floor, measure.WallUnit))})
	}
	sec.Table([]string{"call", "ns", "of floor"}, rows)
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

var dependency = regexp.MustCompile(`<dependency><groupId>[^<]*</groupId><artifactId>([^<]*)</artifactId><version>([^<]*)<`)

// versions names the limiters that the project depends on, with versions.
func versions() string {
	text, _ := project.ReadFile("project/pom.xml")
	var all []string
	for _, d := range dependency.FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(d[1], "jmh") {
			all = append(all, d[1]+" "+d[2])
		}
	}
	return strings.Join(all, ", ")
}
