package etcdlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a call says that this program has ended itself is no trouble, as of a renewal that another one has overtaken.
func TestACallThatWasEndedIsNoTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		level string
	}{
		{context.Canceled, "DEBUG"},
		{fmt.Errorf("log in: %w", context.Canceled), "DEBUG"},
		{status.Error(codes.Canceled, "context canceled"), "DEBUG"},
		{context.DeadlineExceeded, "ERROR"},
		{errors.New("etcdserver: authentication failed"), "ERROR"},
	} {
		for _, least := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
			var text bytes.Buffer
			New(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: least}))).Error("clientv3/retry_interceptor: getToken failed", zap.Error(c.err))
			if shown := c.level == "ERROR" || least == slog.LevelDebug; shown != strings.Contains(text.String(), "level="+c.level) {
				t.Errorf("%v at %v: %s", c.err, least, text.String())
			}
		}
	}
}
