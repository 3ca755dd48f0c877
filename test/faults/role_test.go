//go:build e2e && linux

package faults

import (
	"os"
	"testing"

	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
)

// over is closed when a child is to end.
type over = <-chan struct{}

// told is what a child tells: that it is ready, and a provider at last its record.
type told struct {
	Ready  bool
	Record *record
}

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	child.Be("member", beMember)
	child.Be("instance", beInstance)
	child.Be("provider", beProvider)
	child.Be("callers", beCallers)
	os.Exit(m.Run())
}
