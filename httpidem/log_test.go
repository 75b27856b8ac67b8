package httpidem

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/stretchr/testify/require"
)

func withKeyOfRequest(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, stateKey{}, &state{header: key})
}

// Each record of a keyed request has its key, at the top level and once (rule 21).
func TestLogHandlerAddsTheKey(t *testing.T) {
	keyed := withKeyOfRequest(t.Context(), "k-1")
	for name, c := range map[string]struct {
		ctx  context.Context
		log  func(context.Context, *slog.Logger)
		want string
	}{
		"keyed": {
			keyed, func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "m", "a", 1) },
			`{"msg":"m","a":1,"idempotency_key":"k-1"}`,
		},
		"not keyed": {
			t.Context(), func(ctx context.Context, l *slog.Logger) {
				l.InfoContext(ctx, "m", "a", 1)
			}, `{"msg":"m","a":1}`,
		},
		"with": {
			keyed, func(ctx context.Context, l *slog.Logger) {
				l.With("b", 2).InfoContext(ctx, "m")
			}, `{"msg":"m","b":2,"idempotency_key":"k-1"}`,
		},
		"group": {
			keyed, func(ctx context.Context, l *slog.Logger) {
				l.WithGroup("g").InfoContext(ctx, "m", "a", 1)
			}, `{"msg":"m","idempotency_key":"k-1","g":{"a":1}}`,
		},
		"group, none": {
			t.Context(), func(ctx context.Context, l *slog.Logger) {
				l.WithGroup("g").InfoContext(ctx, "m", "a", 1)
			}, `{"msg":"m","g":{"a":1}}`,
		},
		"groups": {keyed, func(ctx context.Context, l *slog.Logger) {
			l.With("b", 2).WithGroup("g").With("c", 3).WithGroup("h").InfoContext(ctx, "m", "a", 1)
		}, `{"msg":"m","b":2,"idempotency_key":"k-1","g":{"c":3,"h":{"a":1}}}`},
		"has it": {
			keyed, func(ctx context.Context, l *slog.Logger) {
				l.InfoContext(ctx, "m", "idempotency_key", "own")
			}, `{"msg":"m","idempotency_key":"own"}`,
		},
		"has it by with": {keyed, func(ctx context.Context, l *slog.Logger) {
			l.With("idempotency_key", "own").WithGroup("g").InfoContext(ctx, "m", "a", 1)
		}, `{"msg":"m","idempotency_key":"own","g":{"a":1}}`},
		"in a group": {keyed, func(ctx context.Context, l *slog.Logger) {
			l.WithGroup("g").InfoContext(ctx, "m", "idempotency_key", "own")
		}, `{"msg":"m","idempotency_key":"k-1","g":{"idempotency_key":"own"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.log(c.ctx, slog.New(NewLogHandler(slog.NewJSONHandler(&out,
				&slog.HandlerOptions{ReplaceAttr: onlyMessage}))))
			require.JSONEq(t, c.want, out.String())
			require.LessOrEqual(
				t, bytes.Count(
					out.Bytes(), []byte(`"idempotency_key"`),
				), 1+bytes.Count([]byte(c.want), []byte(`"own"`))*bytes.Count([]byte(c.want),
					[]byte(`"k-1"`)),
			)
		})
	}
}

func onlyMessage(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}

// It keeps the rules of slog.
func TestLogHandlerKeepsTheRules(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return NewLogHandler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		require.NoError(t, json.Unmarshal(out.Bytes(), &m))
		return m
	})
}

// Derived loggers do not write into each other's groups, even concurrently.
func TestLogHandlersShareNothing(t *testing.T) {
	ctx := withKeyOfRequest(t.Context(), "k")
	var mu sync.Mutex
	var out bytes.Buffer
	parent := slog.New(NewLogHandler(slog.NewJSONHandler(&lockedWriter{&mu, &out},
		&slog.HandlerOptions{ReplaceAttr: onlyMessage}))).
		WithGroup("p").With("y", 1).WithGroup("q")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a, b := parent.With("x", "a"), parent.With("x", "b")
			a.WithGroup("a").InfoContext(ctx, "a", "v", 1)
			b.WithGroup("b").InfoContext(ctx, "b", "v", 1)
		})
	}
	all.Wait()
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	require.Len(t, lines, 16)
	for _, line := range lines {
		var m struct{ Msg string }
		require.NoError(t, json.Unmarshal(line, &m))
		require.JSONEq(
			t,
			`{"msg":"`+m.Msg+`","idempotency_key":"k","p":{"y":1,"q":{"x":"`+m.Msg+`","`+m.Msg+`":{"v":1}}}}`, string(line),
		)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// A record belongs to its creator: two handlers get the same one.
func TestLogHandlerLeavesTheRecordAlone(t *testing.T) {
	var a, b bytes.Buffer
	options := &slog.HandlerOptions{ReplaceAttr: onlyMessage}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "m", 0)
	for i := range 8 { // enough attributes to give the record spare capacity
		r.Add(string(rune('a'+i)), i)
	}
	for _, out := range []*bytes.Buffer{&a, &b} {
		require.NoError(t, NewLogHandler(slog.NewJSONHandler(out,
			options)).Handle(withKeyOfRequest(t.Context(), "k"), r))
	}
	for _, out := range []string{a.String(), b.String()} {
		require.JSONEq(
			t, `{"msg":"m","a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"idempotency_key":"k"}`,
			out,
		)
	}
}
