package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// BenchmarkJava measures the limiters that Java programs use, by JMH with one thread,
// in nanoseconds that pass. Maven gets them from Maven Central.
func BenchmarkJava(b *testing.B) {
	dir := b.TempDir()
	classpath, err := peer.BuildJava(b.Context(), ".", dir)
	must(b, err)
	args := []string{"-cp", classpath, "org.openjdk.jmh.Main", "-rf", "json", "-rff", filepath.Join(dir, "scores.json")}
	jmh := exec.CommandContext(b.Context(), "java", append(args, whole(
		[]string{"-f", "1", "-wi", "2", "-w", "250ms", "-i", "4", "-r", "150ms"},
		[]string{"-f", "0", "-wi", "0", "-i", "1", "-r", "10ms"})...)...)
	if out, err := jmh.CombinedOutput(); err != nil {
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
