package envoy

import (
	"fmt"
	"os"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if err := await.Leaks(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}
