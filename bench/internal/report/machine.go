package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Machine says on what the results were made, as key and value.
func Machine() [][2]string {
	m := [][2]string{
		{"cpu", procValue("/proc/cpuinfo", "model name")},
		{"processors", fmt.Sprint(runtime.NumCPU())},
		{"memory", procValue("/proc/meminfo", "MemTotal")},
		{"kernel", output("uname", "-sr")},
		{"clock", readLine("/sys/devices/system/clocksource/clocksource0/current_clocksource")},
		{"load at start", readLine("/proc/loadavg")},
		{"go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
		{"commit", commit()},
	}
	return slices.DeleteFunc(m, func(kv [2]string) bool { return kv[1] == "" })
}

// Modules returns the modules that were compared with, and their versions.
func Modules(paths ...string) [][2]string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found [][2]string
	for _, path := range paths {
		for _, dep := range info.Deps {
			if dep.Path == path {
				found = append(found, [2]string{path, dep.Version})
			}
		}
	}
	return found
}

// commit returns the revision of the checkout, and whether it was changed.
func commit() string {
	hash := output("git", "rev-parse", "--short=12", "HEAD")
	if hash != "" && output("git", "status", "--porcelain", "--untracked-files=no", "--", ":!RESULTS.md") != "" {
		hash += ", with changes"
	}
	return hash
}

func output(name string, args ...string) string {
	out, err := exec.CommandContext(context.Background(), name, args...).Output() //nolint:gosec // the commands stand above
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func readLine(path string) string {
	text, _ := os.ReadFile(path) // what cannot be read is left out
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func procValue(path, key string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
