package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
)

// On a real etcd: what the exit code says, and that each format can be read.
func TestDoctor(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "5/s")
	stdout, _ := b.want(exitDone, "doctor", "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	checks := map[string]int{}
	for _, f := range d.Findings {
		checks[f.Check]++
	}
	if !d.Healthy || d.Problems != 0 || checks["etcd"] < 3 || checks["clock"] != 1 || checks["fleet"] != 1 {
		t.Errorf("%d of etcd, %d of the clock, %d of fleets in\n%s", checks["etcd"], checks["clock"], checks["fleet"], stdout)
	}
	if strings.Contains(stdout, "not known") || !strings.Contains(stdout, "it keeps ") {
		t.Errorf("the history kept is not told:\n%s", stdout)
	}
	b.want(exitDone, "doctor", "-o", "yaml")
	stdout, stderr := b.want(exitFailed, "doctor", "nobody")
	if !strings.Contains(stdout, "mend: check the name") || !strings.Contains(stderr, "1 problem found") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", stdout, stderr)
	}
	b.want(exitUsage, "doctor", "--ntp", "a,a")
	stdout, _ = b.want(exitFailed, "doctor", "--quotad", "/nowhere/quotad.sock")
	if !strings.Contains(stdout, "/nowhere/quotad.sock") || !strings.Contains(stdout, "mend: see whether it runs") {
		t.Errorf("stdout:\n%s", stdout)
	}

	// A port on which nobody listens.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stdout, _ = b.want(exitUnreachable, "doctor", "--endpoints", nobody, "--command-timeout", "500ms", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || d.Healthy || d.Problems != 2 {
		t.Errorf("%v, %d problems in\n%s", err, d.Problems, stdout)
	}
}
