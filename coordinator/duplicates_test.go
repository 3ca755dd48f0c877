package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// TestTwoSessionsOfAProcessAreToldOnce: the warning names both, and comes neither
// for another provider nor after one of them has left.
func TestTwoSessionsOfAProcessAreToldOnce(t *testing.T) {
	f := setup(t)
	var log bytes.Buffer // one handler locks it for all loggers
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	join := func(name string) *Session {
		s, err := Join(t.Context(), f.client, Options{Name: name, Prefix: f.prefix, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	open := func(s *Session, provider string) (leave func() error) {
		r, leave := f.subscribe(s, provider)
		await.Until(t, "a proof", r.is(proved))
		return leave
	}
	a, b, c := join("ann"), join("bob"), join("cat")
	defer c.Close()
	if err := open(a, "alone")(); err != nil {
		t.Fatal(err)
	}
	open(b, "alone")
	open(a, "p")
	open(b, "p")
	open(c, "p")
	for _, s := range []*Session{a, b} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	if n := strings.Count(got, "two instances of one provider"); n != 1 || !strings.Contains(got, "ann") || !strings.Contains(got, "bob") || strings.Contains(got, "alone") {
		t.Errorf("%d warnings: %s", n, got)
	}
}
