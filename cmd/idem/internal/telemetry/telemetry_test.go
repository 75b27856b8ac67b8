package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
)

// environment clears all variables of OpenTelemetry and then sets pairs.
func environment(t *testing.T, pairs ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "") // restored at the end of the test
		}
	}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

// logged collects lines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

// stacks returns the goroutines of OpenTelemetry and of HTTP clients and servers. It leaves out the
// runners of the tests and the calling goroutine.
func stacks() (found []string) {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	for i, g := range strings.Split(string(all), "\n\n") {
		if i > 0 && (strings.Contains(g, "opentelemetry") || strings.Contains(g, "net/http.")) {
			found = append(found, g)
		}
	}
	return found
}

// noneLeft fails if goroutines are left after the test's servers have ended.
func noneLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, stacks(), "before the test")
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		assert.Eventually(t, func() bool { return len(stacks()) == 0 }, 10*time.Second, 10*time.Millisecond)
		for _, g := range stacks() {
			t.Log(g)
		}
	})
}

// stderr returns the text that is written to standard error until the test ends.
func stderr(t *testing.T) (text func() string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stderr")
	require.NoError(t, err)
	was := os.Stderr
	os.Stderr = f
	t.Cleanup(func() {
		os.Stderr = was
		_ = f.Close()
	})
	return func() string {
		b, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		return string(b)
	}
}

// use records a count and a span, as an example does.
func use(ctx context.Context) {
	count, err := otel.Meter("test").Int64Counter("idem.test.count")
	if err != nil {
		panic(err)
	}
	count.Add(ctx, 1)
	_, span := otel.Tracer("test").Start(ctx, "work")
	span.End()
}

// collector receives exports by OTLP over HTTP.
type collector struct {
	*httptest.Server
	answer  atomic.Int32
	said    string        // text of its answers
	hang    chan struct{} // if not nil, answers wait for it
	mu      sync.Mutex
	metrics bytes.Buffer
	spans   bytes.Buffer
	token   string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.answer.Store(http.StatusOK)
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	c.mu.Lock()
	to := &c.metrics
	if strings.HasSuffix(r.URL.Path, "/traces") {
		to = &c.spans
	}
	_, _ = io.Copy(to, body)
	c.token = r.Header.Get("Authorization")
	c.mu.Unlock()
	if c.hang != nil {
		<-c.hang
	}
	w.WriteHeader(int(c.answer.Load()))
	_, _ = io.WriteString(w, c.said)
}

func (c *collector) got() (metrics, spans, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics.String(), c.spans.String(), c.token
}

func TestStart_OffUnlessAsked(t *testing.T) {
	noneLeft(t)
	for name, pairs := range map[string][]string{
		"nothing is said": nil,
		"none":            {"OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"},
		"disabled":        {"OTEL_METRICS_EXPORTER=prometheus", "OTEL_TRACES_EXPORTER=otlp", "OTEL_SDK_DISABLED=TRUE"},
		"a header alone":  {"OTEL_EXPORTER_OTLP_HEADERS=a=b", "OTEL_SERVICE_NAME=x", "OTEL_EXPORTER_PROMETHEUS_PORT=9464"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, pairs...)
			var log logged
			stop, err := Start(t.Context(), "test", log.logger())
			require.NoError(t, err)
			assert.IsType(t, metricnoop.MeterProvider{}, otel.GetMeterProvider())
			assert.IsType(t, tracenoop.TracerProvider{}, otel.GetTracerProvider())
			assert.Empty(t, stacks(), "nothing runs")
			require.NoError(t, stop(t.Context()))
			assert.Empty(t, log.all())
		})
	}
}

func TestStart_Prometheus(t *testing.T) {
	noneLeft(t)
	host, port, err := net.SplitHostPort(testenv.FreeAddr(t))
	require.NoError(t, err)
	environment(t, "OTEL_METRICS_EXPORTER=prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST="+host, "OTEL_EXPORTER_PROMETHEUS_PORT="+port,
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=here")
	var log logged
	stop, err := Start(t.Context(), "notifier", log.logger())
	require.NoError(t, err)
	use(t.Context())
	url := "http://" + net.JoinHostPort(host, port) + "/metrics"
	text := scrape(t, url)
	assert.Contains(t, text, "\nidem_test_count_total{")
	assert.Contains(t, text, `service_name="notifier"`)
	assert.Contains(t, text, `deployment_environment_name="here"`)
	assert.NotContains(t, text, "beat")
	assert.NotContains(t, text, os.Args[0], "arguments of a process have passwords")

	_, err = Start(t.Context(), "another", log.logger())
	require.ErrorContains(t, err, "binding address "+net.JoinHostPort(host, port), "who asks for it is told that it cannot be had")

	require.NoError(t, stop(t.Context()))
	require.NoError(t, stop(t.Context()), "again does nothing")
	_, err = http.Get(url)
	require.Error(t, err)
	use(t.Context()) // not exported
	assert.Empty(t, log.all())
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

func TestStart_OTLP(t *testing.T) {
	for name, how := range map[string][]string{
		"asked for":             {"OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=otlp"},
		"by the endpoint alone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			c := newCollector(t)
			environment(t, append(how, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20canary",
				"OTEL_SERVICE_NAME=renamed")...)
			text := stderr(t)
			var log logged
			stop, err := Start(t.Context(), "notifier", log.logger())
			require.NoError(t, err)
			use(t.Context())
			require.NoError(t, stop(t.Context()), "which exports what is left")
			metrics, spans, token := c.got()
			assert.Contains(t, metrics, "idem.test.count")
			assert.Contains(t, metrics, "renamed")
			assert.Contains(t, metrics, "service.instance.id")
			assert.NotContains(t, metrics, "unknown_service")
			assert.NotContains(t, metrics, "beat")
			assert.Contains(t, spans, "work")
			assert.Contains(t, spans, "renamed")
			assert.Equal(t, "Bearer canary", token)
			for _, body := range []string{metrics, spans} {
				assert.NotContains(t, body, "canary")
				assert.NotContains(t, body, os.Args[0])
			}
			assert.Empty(t, log.all())
			assert.Empty(t, text())
		})
	}
}

// The last export has the metrics that the observer reports only when they are read.
func TestObserve_LastExportHasDuplicates(t *testing.T) {
	noneLeft(t)
	c := newCollector(t)
	environment(t, "OTEL_METRICS_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
	var log logged
	observer, end, err := Observe(t.Context(), "notifier", log.logger())
	require.NoError(t, err)
	observer.ObserveDuplicate(t.Context(), observe.DuplicateEvent{Message: &idem.Message{Topic: "orders"}})
	end()
	metrics, _, _ := c.got()
	assert.Contains(t, metrics, "idem.duplicates")
	assert.Empty(t, log.all())
}

// One line when the collector goes away and one when it is back. A collector that quotes a request
// does not bring the quote into the log.
func TestStart_CollectorGoesAndComesBack(t *testing.T) {
	noneLeft(t)
	c := newCollector(t)
	c.said = "I do not take Bearer canary"
	c.answer.Store(http.StatusBadRequest)
	environment(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20canary",
		"OTEL_METRIC_EXPORT_INTERVAL=20", "OTEL_BSP_SCHEDULE_DELAY=20")
	text := stderr(t)
	var log logged
	stop, err := Start(t.Context(), "notifier", log.logger())
	require.NoError(t, err)
	count := func(word, signal string) (n int) {
		for line := range strings.Lines(log.all()) {
			if strings.Contains(line, word) && strings.Contains(line, "signal="+signal) {
				n++
			}
		}
		return n
	}
	exports := func(much int) func() bool { // waits for that many more
		metrics, spans, _ := c.got()
		before, beforeSpans := len(metrics)+much, len(spans)+much
		return func() bool {
			use(t.Context())
			metrics, spans, _ := c.got()
			return len(metrics) > before && len(spans) > beforeSpans
		}
	}
	require.Eventually(t, exports(5000), 20*time.Second, 10*time.Millisecond)
	for _, signal := range []string{"metrics", "spans"} {
		assert.Equal(t, 1, count("cannot be exported", signal), signal)
		assert.Zero(t, count("exported again", signal), signal)
	}
	c.answer.Store(http.StatusOK)
	require.Eventually(t, func() bool {
		use(t.Context())
		return count("exported again", "metrics") == 1 && count("exported again", "spans") == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, exports(5000), 20*time.Second, 10*time.Millisecond)
	require.NoError(t, stop(t.Context()))
	for _, signal := range []string{"metrics", "spans"} {
		assert.Equal(t, 1, count("cannot be exported", signal), signal)
		assert.Equal(t, 1, count("exported again", signal), signal)
	}
	assert.NotContains(t, log.all(), "canary")
	assert.Empty(t, text(), "the SDK writes to standard error unless it is told not to")
}

// A stop cuts an export of metrics in flight, which is no failure: the last export has all metrics.
func TestStart_StopDuringExport(t *testing.T) {
	noneLeft(t)
	c := newCollector(t)
	c.hang = make(chan struct{})
	environment(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+c.URL+"/metrics", "OTEL_METRIC_EXPORT_INTERVAL=20")
	var log logged
	stop, err := Start(t.Context(), "notifier", log.logger())
	require.NoError(t, err)
	use(t.Context())
	exported := func() int { metrics, _, _ := c.got(); return len(metrics) }
	require.Eventually(t, func() bool { return exported() > 0 }, 20*time.Second, time.Millisecond)
	cut := exported()
	stopped := make(chan error)
	go func() { stopped <- stop(t.Context()) }()
	require.Eventually(t, func() bool { return exported() > cut }, 20*time.Second, time.Millisecond, "the last export")
	close(c.hang)
	require.NoError(t, <-stopped)
	require.NotContains(t, log.all(), "cannot be exported")
}

// Neither a collector that hangs nor one that is down delays the end of a program.
func TestStart_ShutdownIsBounded(t *testing.T) {
	noneLeft(t)
	c := newCollector(t)
	c.hang = make(chan struct{})
	t.Cleanup(func() { close(c.hang) })
	environment(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
	var log logged
	stop, err := Start(t.Context(), "notifier", log.logger())
	require.NoError(t, err)
	use(t.Context())
	began := time.Now()
	require.Error(t, stop(t.Context()))
	assert.Less(t, time.Since(began), shutdownTime+2*time.Second)
	assert.Contains(t, log.all(), "cannot be exported")
	own := func() (n int) { // the collector's still hang
		for _, g := range stacks() {
			if strings.Contains(g, "go.opentelemetry.io") && !strings.Contains(g, "telemetry.(*collector)") {
				n++
			}
		}
		return n
	}
	assert.Eventually(t, func() bool { return own() == 0 }, 5*time.Second, 10*time.Millisecond, "the export that hung has ended")
}

// The SDK quotes variables that it cannot read.
func TestStart_VariablesAreNotLogged(t *testing.T) {
	noneLeft(t)
	c := newCollector(t)
	for name, pairs := range map[string][]string{
		"header without name": {"OTEL_EXPORTER_OTLP_HEADERS=canary"},
		"no escape":           {"OTEL_EXPORTER_OTLP_HEADERS=a=canary%zz"},
		"no URL":              {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://user:canary@127.0.0.1:x"},
		"no resource":         {"OTEL_RESOURCE_ATTRIBUTES=canary"},
		"no protocol":         {"OTEL_EXPORTER_OTLP_PROTOCOL=canary"},
		"no exporter":         {"OTEL_TRACES_EXPORTER=canary"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL}, pairs...)...)
			text := stderr(t)
			var log logged
			stop, err := Start(t.Context(), "notifier", log.logger())
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err = errors.Join(stop(ctx), errors.New(log.all()))
			}
			assert.NotEmpty(t, strings.TrimSpace(err.Error()), "it is said that something is wrong")
			assert.NotContains(t, err.Error(), "canary")
			assert.NotContains(t, log.all(), "canary")
			assert.Empty(t, text())
		})
	}
}

func TestSecrets(t *testing.T) {
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS":          "a=first,b=sec%20ond",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":   "c=third",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://me:pass%21@host:4318/v1",
		"HTTPS_PROXY":                         "://other:word@host",
	}
	s := secretsOf(func(name string) string { return env[name] })
	for _, text := range []string{"first", "sec%20ond", "sec ond", "third", "me:pass%21", "pass!", "://other:word@host"} {
		assert.NotContains(t, s.mask("a "+text+" b"), text)
	}
	assert.Equal(t, "dial tcp 127.0.0.1:4318: connection refused", s.mask("dial tcp 127.0.0.1:4318: connection refused"))
	assert.Len(t, s.mask(strings.Repeat("x", 1000)), maxText+len("..."))
}
