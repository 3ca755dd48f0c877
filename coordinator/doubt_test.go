package coordinator

import (
	"log/slog"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestSilenceBeforeFirstProofIsDoubted: etcd went away right after a listing,
// before anything was proved, came back from a backup and went on past the
// revisions that were known. Nothing looked backwards; only the silence tells.
func TestSilenceBeforeFirstProofIsDoubted(t *testing.T) {
	s := &Session{keys: keys{DefaultPrefix}, ctx: t.Context(), o: Options{Clock: clock.New(), Logger: slog.New(slog.DiscardHandler)}}
	p := newPlace(s, "p", &recorder{})
	p.id = "a"
	const listed = int64(10 * time.Second)
	p.listLocked(clock.Instant{Mono: listed, Wall: listed}, 7, 1, nil)
	p.policy = &quota.Policy{Freshness: time.Second}

	p.doubtLocked(clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second)})
	if p.tracker.Doubted() {
		t.Error("doubted within the freshness of the listing")
	}
	suspended := clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second) + 1}
	p.doubtLocked(suspended)
	if !p.tracker.Doubted() {
		t.Error("not doubted after a silence longer than the freshness")
	}
	p.tracker.Answer(view.Probe{}, 7, 1)
	if _, ok := p.tracker.Proof(); ok {
		t.Error("a proof counts that nobody has checked")
	}
}
