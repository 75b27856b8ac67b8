package telemetry

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/sdk/trace"
)

// state records whether a signal is exported. Only changes are logged.
type state struct {
	log     *slog.Logger
	signal  string
	secrets secrets

	mu    sync.Mutex
	down  bool
	fresh bool // an export failed since the last turn
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
	s.log.Warn("telemetry cannot be exported; the program goes on", "signal", s.signal,
		"error", s.secrets.mask(err.Error()))
}

// turn marks the begin of an export. If no export failed since the last turn, the export between
// succeeded.
func (s *state) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down && !s.fresh {
		s.down = false
		s.log.Info("telemetry is exported again", "signal", s.signal)
	}
	s.fresh = false
}

// succeeded marks the end of a successful export.
func (s *state) succeeded() {
	s.mu.Lock()
	s.fresh = false
	s.mu.Unlock()
	s.turn()
}

// spanExporter reports results to state. The SDK sees no errors, because it would write each to
// standard error.
type spanExporter struct {
	trace.SpanExporter
	state *state
	life  context.Context // ends exports before their own time-out
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

// misconfigured logs the complaints of the SDK about environment variables, each text once. The
// attributes are dropped, because they hold the values and so may hold passwords.
type misconfigured struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

// maxSaid bounds the number of different complaints.
const maxSaid = 20

// Enabled lets warnings and errors through. Warnings are -1 in logr.
func (m *misconfigured) Enabled(_ context.Context, level slog.Level) bool { return level >= -1 }

// Handle logs the message without attributes.
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
	m.log.WarnContext(ctx, "OpenTelemetry reports a problem with the variables OTEL_*",
		"problem", r.Message)
	return nil
}

// WithAttrs drops the attributes.
func (m *misconfigured) WithAttrs([]slog.Attr) slog.Handler { return m }

// WithGroup has no effect, because there are no attributes.
func (m *misconfigured) WithGroup(string) slog.Handler { return m }

// secrets are texts of the environment that must not be logged.
type secrets []string

// secretsOf collects the values of headers, and the user and password of URLs.
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

// maxText bounds the length of an error. A collector may answer with a longer text.
const maxText = 300

// mask returns text without secrets, cut to maxText.
func (s secrets) mask(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}
