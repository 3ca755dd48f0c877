package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/testkit/told"
)

// A provider that is open, and which etcd does not let quotad use, is answered as one that is not open: the same call fails
// until the role is granted.
func TestAnOpenProviderThatIsForbidden(t *testing.T) {
	source := told.New()
	s := serverOf(t, feed.Over[feed.Source](source), roomy)
	p := newProcess(t, s, "one")
	source.Sink.Trouble(fmt.Errorf("watch p: %w: permission denied", cause.ErrDenied))
	want := `"status":403,"detail":"forbidden provider p: etcd does not permit it; quota-admin roles consumer p --to USER grants it"`
	if got := p.post("/v1/acquire", `{"provider":"p"}`); got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), want) {
		t.Errorf("%d %s, want %s", got.Code, got.Body, want)
	}
	source.Sink.Trouble(nil)
	if got := p.post("/v1/acquire", `{"provider":"p"}`); got.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s while it joins", got.Code, got.Body)
	}
}
