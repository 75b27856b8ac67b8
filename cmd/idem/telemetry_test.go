package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// collector receives metrics and spans by OTLP over HTTP.
type collector struct {
	mu             sync.Mutex
	metrics, spans bytes.Buffer
	hang           chan struct{} // answers wait for it, unless nil
}

// newCollector is named by the environment of the test.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
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
	c.mu.Unlock()
	if c.hang != nil {
		<-c.hang
	}
}

func (c *collector) got() (metrics, spans string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics.String(), c.spans.String()
}

// TestRelay_Telemetry: the metrics and the spans of a relay reach a collector, the last at its end.
func TestRelay_Telemetry(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "50") // gauges are of a relay that runs
	cluster, _ := fakeKafka(t, 1)
	brokers := cluster.ListenAddrs()
	require.NoError(t, testenv.KafkaAdmin(t, brokers).CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	o := newTestOutbox(t)
	o.add(event("orders", "1", "a"), event("orders", "1", "b"))
	r := startRelay(t, "--outbox", o.url, "--brokers", strings.Join(brokers, ","), "--interval", "50ms")
	require.Eventually(t, func() bool { return o.backlog().Waiting == 0 }, soon, poll)
	require.Eventually(t, func() bool {
		metrics, _ := c.got()
		return strings.Contains(metrics, "idem.outbox.backlog") && strings.Contains(metrics, "idem.outbox.shards")
	}, soon, poll)
	require.Contains(t, r.end(t), "2 sent")
	metrics, spans := c.got()
	for _, name := range []string{"idem-relay", "idem.outbox.rows", "idem.outbox.delay", "messaging.client.sent.messages", "orders"} {
		require.Contains(t, metrics, name)
	}
	require.Contains(t, spans, "idem-relay")
	require.Contains(t, spans, "send orders")
}

// TestOps_Telemetry: requests are measured by page, without the ID that was looked up.
func TestOps_Telemetry(t *testing.T) {
	c := newCollector(t)
	_, stores := memory()
	p := startOps(t, stores, "-G", "billing", "--store", inMemory, "--prefix", "/ops/")
	p.get("event?id=secret-id")
	status, _, _ := p.ask("secret-path", nil)
	require.Equal(t, http.StatusNotFound, status)
	p.end(t)
	metrics, spans := c.got()
	require.Contains(t, metrics, "idem-ops")
	require.Contains(t, metrics, "http.server.request.duration")
	require.Contains(t, metrics, "/ops/event")
	require.Contains(t, spans, "GET /ops/event")
	require.NotContains(t, metrics+spans, "secret")
}

// There is no export unless the environment asks for it. A collector that hangs delays the end by
// the bound only, and wrong variables end the start.
func TestTelemetry_OffAndBounded(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_SDK_DISABLED", "true")
	_, stores := memory()
	p := startOps(t, stores, "-G", "billing", "--store", inMemory)
	p.get("")
	p.end(t)
	metrics, spans := c.got()
	require.Empty(t, metrics+spans)

	t.Setenv("OTEL_SDK_DISABLED", "")
	c.hang = make(chan struct{})
	defer close(c.hang)
	p = startOps(t, stores, "-G", "billing", "--store", inMemory)
	p.get("")
	began := time.Now()
	p.end(t)
	require.Less(t, time.Since(began), soon)
	require.Contains(t, p.stderr.String(), "telemetry cannot be exported")

	t.Setenv("OTEL_METRICS_EXPORTER", "pigeon")
	commandWith(t, stores, "", "ops", "-G", "billing", "--store", inMemory).failed(t, exitFailure, "telemetry")
}
