package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
)

func TestVersion(t *testing.T) {
	b := newBench(t, server)
	stdout, _ := b.want(exitDone, "version")
	if !strings.HasPrefix(stdout, "VERSION ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("got %s", stdout)
	}
	stdout, _ = b.want(exitDone, "version", "-o", "json")
	var v buildInfo
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v != readBuildInfo() {
		t.Errorf("%v: %s", err, stdout)
	}
	stdout, _ = b.want(exitDone, "version", "-o", "yaml")
	var m map[string]any
	if err := yaml.Unmarshal([]byte(stdout), &m); err != nil || m["go"] != v.Go {
		t.Errorf("%v: %s", err, stdout)
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	if stdout, _ := b.want(exitDone, "--version"); stdout != "quota-admin "+buildinfo.Version()+"\n" {
		t.Errorf("%q", stdout)
	}
}
