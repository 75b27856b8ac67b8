package telemetry

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/sdk/trace"
)

// state is whether a signal is exported. It logs changes, and nothing else.
type state struct {
	log     *slog.Logger
	signal  string
	secrets secrets

	mu    sync.Mutex
	down  bool
	fresh bool // it failed since the last turn
}

func newState(log *slog.Logger, signal string, secrets secrets) *state {
	return &state{log: log, signal: signal, secrets: secrets}
}

func (s *state) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = true
	if s.down {
		return
	}
	s.down = true
	s.log.Warn("telemetry cannot be exported; nothing else depends on it", "signal", s.signal, "error", s.secrets.mask(err.Error()))
}

// turn is the begin of an export: if nothing failed since the one before, that one succeeded.
func (s *state) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down && !s.fresh {
		s.down = false
		s.log.Info("telemetry is exported again", "signal", s.signal)
	}
	s.fresh = false
}

// succeeded is the end of an export that was well.
func (s *state) succeeded() {
	s.mu.Lock()
	s.fresh = false
	s.mu.Unlock()
	s.turn()
}

// spanExporter tells state how its exports went, and the SDK nothing: it would write each failure to standard error.
type spanExporter struct {
	trace.SpanExporter
	state *state
	life  context.Context // an export ends with it, and not with its own time-out alone
}

func (e *spanExporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.state.failed(err)
		return nil
	}
	e.state.succeeded()
	return nil
}

// misconfigured logs what the SDK says about its variables: the words, each once, and not the values, which are where passwords
// are.
type misconfigured struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

// maxSaid bounds how many different things are said.
const maxSaid = 20

// Enabled lets warnings through, which logr calls -1, and what is worse.
func (m *misconfigured) Enabled(_ context.Context, level slog.Level) bool { return level >= -1 }

// Handle logs the message alone.
func (m *misconfigured) Handle(ctx context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said[r.Message] || len(m.said) >= maxSaid {
		return nil
	}
	if m.said == nil {
		m.said = make(map[string]bool)
	}
	m.said[r.Message] = true
	m.log.WarnContext(ctx, "OpenTelemetry complains: look at the variables OTEL_*", "problem", r.Message)
	return nil
}

// WithAttrs drops them.
func (m *misconfigured) WithAttrs([]slog.Attr) slog.Handler { return m }

// WithGroup does nothing, as there are no attributes.
func (m *misconfigured) WithGroup(string) slog.Handler { return m }

// secrets are texts of the environment that must not be logged.
type secrets []string

// secretsOf collects the values of headers, and of URLs the part before the host.
func secretsOf(getenv func(string) string) (s secrets) {
	for _, signal := range []string{"", "_METRICS", "_TRACES"} {
		for pair := range strings.SplitSeq(getenv("OTEL_EXPORTER_OTLP"+signal+"_HEADERS"), ",") {
			_, value, _ := strings.Cut(pair, "=")
			s = s.with(value)
			if decoded, err := url.PathUnescape(value); err == nil {
				s = s.with(decoded)
			}
		}
		s = s.withURL(getenv("OTEL_EXPORTER_OTLP" + signal + "_ENDPOINT"))
	}
	for _, proxy := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		s = s.withURL(getenv(proxy))
	}
	return s
}

func (s secrets) withURL(text string) secrets {
	u, err := url.Parse(text)
	if err != nil {
		return s.with(text)
	}
	if u.User == nil {
		return s
	}
	password, _ := u.User.Password()
	return s.with(u.User.String()).with(password).with(u.User.Username())
}

func (s secrets) with(text string) secrets {
	if text = strings.TrimSpace(text); text == "" {
		return s
	}
	return append(s, text)
}

// maxText is more than an error of a network has to say. What a collector answers may be longer.
const maxText = 300

// mask returns text without secrets, and not too much of it.
func (s secrets) mask(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "***")
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}
