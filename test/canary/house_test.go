package canary

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
)

// sink is a way out of the process: read returns all that has left by it.
type sink struct {
	name string
	read func() string
}

// instrument watches all that goes on in a house, and has ways out of its own, such as metrics and
// spans.
type instrument struct {
	observers []observe.Observer
	http      func(context.Context, httpidem.Observation)
	outbox    []outbox.Observer
	sinks     []sink
}

// instruments are made anew for each house. A new way out of the process is added here, by an init
// in a file of its own, and every test looks there.
var instruments []func(testing.TB) instrument

// house has the ways out of the process, which no secret may take.
type house struct {
	t           testing.TB
	log         *slog.Logger
	deadLetters *letterbox
	instruments []instrument
	observers   []observe.Observer // of instruments
	sinks       []sink
}

// newHouse has a logger at level debug and a producer of dead letters.
func newHouse(t testing.TB) *house {
	h := &house{t: t, deadLetters: &letterbox{}}
	lines := &buffer{}
	opts := &slog.HandlerOptions{Level: slog.LevelDebug}
	h.log = slog.New(both{slog.NewTextHandler(lines, opts), slog.NewJSONHandler(lines, opts)})
	h.watch("log", lines.String)
	h.watch("headers of dead letters", h.deadLetters.headers)
	for _, add := range instruments {
		i := add(t)
		h.instruments = append(h.instruments, i)
		h.observers = append(h.observers, i.observers...)
		h.sinks = append(h.sinks, i.sinks...)
	}
	return h
}

func (h *house) watch(name string, read func() string) { h.sinks = append(h.sinks, sink{name, read}) }

// canary begins every secret, and is enough to find the secret by: the rest may have been cut off.
const canary = "Qx7Kanari"

// secret makes one, which no other one is like.
func secret() string { return canary + rand.Text()[:12] }

// number is a secret of digits.
const number = "7364519827364519"

// forms are those in which a secret is looked for, since an encoding may have changed it.
func forms() []string {
	list := []string{canary, number[:9], hex.EncodeToString([]byte(canary)), strings.Trim(fmt.Sprintf("%d", []byte(canary)), "[]")}
	for shift := range 3 { // of the three bytes that four dead letters stand for
		code := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary))
		list = append(list, code[4:12])
	}
	return list
}

// found returns where secrets are.
func (h *house) found() (where []string) {
	for _, out := range h.sinks {
		text := strings.ToLower(out.read())
		for _, form := range forms() {
			if at := strings.Index(text, strings.ToLower(form)); at >= 0 {
				where = append(where, fmt.Sprintf("%s: …%s…", out.name, text[max(0, at-300):min(len(text), at+100)]))
			}
		}
	}
	return where
}

// clean fails the test if a secret is anywhere. The log must not be empty, else the test would look
// at no text.
func (h *house) clean() {
	h.t.Helper()
	require.Empty(h.t, h.found())
	require.NotEmpty(h.t, h.sinks[0].read(), "nothing was logged")
}

// both is a handler for slog that writes each line in two ways.
type both [2]slog.Handler

func (b both) Enabled(ctx context.Context, l slog.Level) bool { return b[0].Enabled(ctx, l) }

func (b both) Handle(ctx context.Context, r slog.Record) error {
	if err := b[0].Handle(ctx, r.Clone()); err != nil {
		return err
	}
	return b[1].Handle(ctx, r)
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}

// buffer is a strings.Builder for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var _ io.Writer = (*buffer)(nil)

// letterbox keeps the published messages.
type letterbox struct {
	mu   sync.Mutex
	msgs []*idem.Message
}

// Produce implements [idem.Producer].
func (l *letterbox) Produce(_ context.Context, msgs ...*idem.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.msgs = append(l.msgs, msgs...)
	return nil
}

// headers are those that Idem has added. Key, value and the record's own headers are a copy of the
// record, byte for byte: a dead letter that lacks them could not be replayed.
func (l *letterbox) headers() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, m := range l.msgs {
		fmt.Fprintln(&b, m.Topic)
		for _, h := range m.Headers {
			if strings.HasPrefix(h.Key, deadletter.HeaderPrefix) && !strings.HasPrefix(h.Key, deadletter.HeaderOriginal) {
				fmt.Fprintf(&b, "%s: %s\n", h.Key, h.Value)
			}
		}
	}
	return b.String()
}

func (l *letterbox) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.msgs)
}
