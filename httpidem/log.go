package httpidem

import (
	"context"
	"log/slog"
	"slices"
)

// LogKey is the attribute of log records that contains the idempotency key.
const LogKey = "idempotency_key"

// NewLogHandler returns a handler that adds [LogKey] to every record that is logged with the
// context of a keyed request, as slog.InfoContext(ctx, ...) does. The value is the key as the
// client sent it ([KeyFrom]). The attribute is at the top level, even in a logger with open groups.
// A record that has the attribute already keeps its own.
//
//	slog.SetDefault(slog.New(httpidem.NewLogHandler(slog.NewJSONHandler(os.Stderr, nil))))
func NewLogHandler(h slog.Handler) slog.Handler { return &logHandler{outer: h, inner: h} }

// logHandler keeps the handler before the first group apart, where the key is added.
type logHandler struct {
	outer  slog.Handler                      // before the first group
	opened []func(slog.Handler) slog.Handler // the first group, and everything after it
	inner  slog.Handler                      // outer with all of opened
	has    bool                              // outer has a key of its own
}

func (l *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return l.inner.Enabled(ctx, level)
}

func (l *logHandler) Handle(ctx context.Context, r slog.Record) error {
	key := KeyFrom(ctx)
	switch {
	case key == "" || l.has:
		return l.inner.Handle(ctx, r)
	case len(l.opened) == 0:
		if !recordHasKey(r) {
			r = r.Clone()
			r.AddAttrs(slog.String(LogKey, key))
		}
		return l.inner.Handle(ctx, r)
	}
	h := l.outer.WithAttrs([]slog.Attr{slog.String(LogKey, key)})
	for _, open := range l.opened {
		h = open(h)
	}
	return h.Handle(ctx, r)
}

func (l *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return l
	}
	if len(l.opened) > 0 {
		return l.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
	}
	h := l.outer.WithAttrs(attrs)
	return &logHandler{outer: h, inner: h, has: l.has || slices.ContainsFunc(attrs, isKey)}
}

func (l *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return l
	}
	return l.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (l *logHandler) with(open func(slog.Handler) slog.Handler) slog.Handler {
	opened := append(slices.Clip(l.opened), open)
	return &logHandler{outer: l.outer, opened: opened, inner: open(l.inner), has: l.has}
}

func isKey(a slog.Attr) bool { return a.Key == LogKey }

func recordHasKey(r slog.Record) (has bool) {
	r.Attrs(func(a slog.Attr) bool {
		has = isKey(a)
		return !has
	})
	return has
}
