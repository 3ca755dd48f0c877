// Package await lets tests wait for what depends on other processes and on a real
// etcd. It bounds a wait by go test's own limit, so that a busy machine makes a test
// slow and not red.
package await

import (
	"flag"
	"runtime"
	"strconv"
	"time"

	"go.uber.org/goleak"
)

// T is what this package needs of a testing.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Deadline() (deadline time.Time, ok bool)
}

const (
	patience = 5 * time.Minute
	reserve  = 20 * time.Second // before go test ends the process, to say what is missing
	interval = 5 * time.Millisecond
)

// Until waits until a condition holds, and fails the test if it never does. what
// completes the sentence "waited in vain until".
func Until(t T, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	until := began.Add(patience)
	if d, ok := t.Deadline(); ok && d.Add(-reserve).Before(until) {
		until = d.Add(-reserve)
	}
	for !holds() {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %v until: %s", time.Since(began).Round(time.Second), what)
		}
		<-time.After(interval)
	}
}

// Leaks waits until no goroutine but the caller's is left, and returns an error with
// those that do not end. It is for TestMain.
func Leaks() (err error) {
	for range 50 { // each look takes half a second, as long as there is one
		if err = goleak.Find(); err == nil {
			break
		}
	}
	return err
}

// Together lets so many tests run at once for each processor, unless the command line says
// how many in all: for a package whose parallel tests wait most of the time. It is for
// TestMain.
func Together(perProcessor int) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0))) // there is such a flag, and it takes numbers
	}
}
