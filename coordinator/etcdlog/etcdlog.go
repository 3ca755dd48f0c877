// Package etcdlog lets etcd's client log by log/slog.
package etcdlog

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// New returns a logger for clientv3.Config.Logger that writes to l. Without one, etcd's
// client prints JSON to standard error. Messages about retried operations, and about calls
// that the program has ended itself, become debug messages.
func New(l *slog.Logger) *zap.Logger {
	return zap.New(&slogCore{l.With("component", "etcd-client")})
}

// slogCore is a zap core that hands everything to slog.
type slogCore struct{ l *slog.Logger }

// level puts warnings down to debug: the client warns of every attempt, and the
// session itself reports the important ones.
func level(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelError
	}
	return slog.LevelDebug
}

// attributes returns fields as slog takes them.
func attributes(fields []zapcore.Field) (all []any) {
	encoded := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(encoded)
	}
	for k, v := range encoded.Fields {
		all = append(all, slog.Any(k, v))
	}
	return all
}

// Enabled implements zapcore.LevelEnabler.
func (c *slogCore) Enabled(l zapcore.Level) bool { return c.l.Enabled(context.Background(), level(l)) }

// With implements zapcore.Core.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{c.l.With(attributes(fields)...)}
}

// Check implements zapcore.Core.
func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core. An error of a call that the session has ended itself is no trouble: it lets several calls
// race, and each may log in first, where the client has a password.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	at := level(e.Level)
	if slices.ContainsFunc(fields, ended) {
		at = slog.LevelDebug
	}
	c.l.Log(context.Background(), at, e.Message, attributes(fields)...)
	return nil
}

// ended reports whether a field is the error of a call that this program has ended.
func ended(f zapcore.Field) bool {
	err, _ := f.Interface.(error)
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// Sync implements zapcore.Core.
func (c *slogCore) Sync() error { return nil }
