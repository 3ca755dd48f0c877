package worker

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// sharedOf is what the generators of a fleet go by whose flags are these.
func sharedOf(t testing.TB, flags string) *shared {
	t.Helper()
	c, err := config.ParseFlags(strings.Fields(flags), func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := &shared{c: c, placing: c.Placing(quota.DefaultClockError), use: func(int64, load.Request) {}}
	s.limits.Store(&c.Limits)
	return s
}

// generator returns one that counts from the present on.
func (s *shared) generator() *generator {
	sheet := s.c.Sheet(time.Now().UnixNano())
	return newGenerator(s, sheet.New())
}
