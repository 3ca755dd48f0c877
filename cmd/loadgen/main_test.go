package main

import (
	"os"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// parentVariable makes the test program be loadgen, for tests that have to end
// it as a process.
const parentVariable = "QUOTIENT_LOADGEN_TEST_PARENT"

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	worker.RunIfChild()
	if _, ok := os.LookupEnv(parentVariable); ok {
		main()
	}
	await.Together(2)
	os.Exit(m.Run())
}

func noEnv(string) string { return "" }
