// Package etcdlog lets etcd's client log by log/slog.
package etcdlog

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger for clientv3.Config.Logger that writes to l. Without one, etcd's
// client prints JSON to standard error. Messages about retried operations become debug
// messages.
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

// Write implements zapcore.Core.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.l.Log(context.Background(), level(e.Level), e.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c *slogCore) Sync() error { return nil }
