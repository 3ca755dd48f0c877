package consumer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

var quiet = slog.New(slog.DiscardHandler)

func policyOf(t *testing.T, limits string) quota.Policy {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	return quota.Policy{Limits: l}
}

func open(t *testing.T, source Source, o Options) *Limiter {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l, err := Open(context.Background(), source, "p", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// bubble runs f in fake time, which begins at the start of a window.
func bubble(t *testing.T, limits string, o Options, f func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		source := Fixed(policyOf(t, limits))
		f(t, t.Context(), source, open(t, source, o))
	})
}

// take takes n permits, and says only how that ended.
func take(ctx context.Context, l *Limiter, n int64, maxWait time.Duration) error {
	_, err := l.Take(ctx, n, maxWait)
	return err
}
