package jvm

import (
	"strings"
	"testing"
)

// The report asks for benchmarks by name; a name that the Java source lacks would
// be reported as nothing.
func TestEveryBenchmarkIsThere(t *testing.T) {
	source, err := project.ReadFile("project/src/main/java/bench/Limiters.java")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names() {
		if !strings.Contains(string(source), " "+name+"()") {
			t.Errorf("the source has no benchmark %s", name)
		}
	}
	if v := versions(); !strings.Contains(v, "guava ") || !strings.Contains(v, "bucket4j") || !strings.Contains(v, "resilience4j") {
		t.Errorf("versions are %q", v)
	}
}
