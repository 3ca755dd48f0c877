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
	"strings"
)

//go:embed project
var project embed.FS

// missing returns what this machine lacks to measure Java; empty if nothing.
func missing() string {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return program
		}
	}
	return ""
}

// build writes the Maven project into the folder, compiles it and returns its
// class path.
func build(ctx context.Context, dir string) (classpath string, err error) {
	err = fs.WalkDir(project, "project", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(path, "project")))
		if d.IsDir() {
			return os.MkdirAll(to, 0o750)
		}
		text, err := project.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		return "", err
	}
	if err := run(ctx, dir, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"); err != nil {
		return "", err
	}
	paths, err := os.ReadFile(filepath.Join(dir, "classpath"))
	return filepath.Join(dir, "target", "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(paths)), err
}

// score is what JMH says of one benchmark.
type score struct {
	Benchmark     string
	Threads       int
	JDKVersion    string `json:"jdkVersion"`
	VMName        string `json:"vmName"`
	PrimaryMetric struct {
		Score   float64     // nanoseconds a call
		RawData [][]float64 // by fork and iteration
	}
}

// measure runs every benchmark with so many threads.
func measure(ctx context.Context, dir, classpath string, threads int) (scores []score, err error) {
	file := filepath.Join(dir, fmt.Sprintf("scores-%d.json", threads))
	err = run(ctx, dir, "java", "-cp", classpath, "org.openjdk.jmh.Main", "-f", "1", "-wi", "2", "-w", "250ms",
		"-i", "4", "-r", "150ms", "-t", fmt.Sprint(threads), "-rf", "json", "-rff", file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return scores, json.Unmarshal(text, &scores)
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
