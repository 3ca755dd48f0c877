package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkJava measures the limiters that Java programs use, by JMH with one thread,
// in nanoseconds that pass. Maven gets them from Maven Central.
func BenchmarkJava(b *testing.B) {
	if _, err := exec.LookPath("mvn"); err != nil {
		b.Skip("no Maven; Debian: apt-get install maven default-jdk-headless")
	}
	dir := b.TempDir()
	run := func(name string, args ...string) ([]byte, error) {
		c := exec.CommandContext(b.Context(), name, args...)
		c.Dir = dir
		return c.CombinedOutput()
	}
	must(b, os.CopyFS(dir, os.DirFS("java")))
	if out, err := run("mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	classpath, err := os.ReadFile(filepath.Join(dir, "classpath"))
	must(b, err)
	args := []string{"-cp", filepath.Join("target", "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(classpath)), "org.openjdk.jmh.Main", "-rf", "json", "-rff", "scores.json"}
	if out, err := run("java", append(args, whole(
		[]string{"-f", "1", "-wi", "2", "-w", "250ms", "-i", "4", "-r", "150ms"},
		[]string{"-f", "0", "-wi", "0", "-i", "1", "-r", "10ms"})...)...); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "scores.json"))
	must(b, err)
	var scores []struct {
		Benchmark     string
		PrimaryMetric struct{ Score float64 }
	}
	must(b, json.Unmarshal(text, &scores))
	floor := 0.0
	for _, s := range scores {
		if strings.HasSuffix(s.Benchmark, ".floorNanoTimeAndAdd") {
			floor = s.PrimaryMetric.Score
		}
	}
	for _, s := range scores {
		b.Run("call="+s.Benchmark[strings.LastIndexByte(s.Benchmark, '.')+1:], func(b *testing.B) {
			b.ReportMetric(s.PrimaryMetric.Score, "ns/op")
			b.ReportMetric(s.PrimaryMetric.Score/floor, "of-floor")
		})
	}
}
