package otelidem_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

var errBoom = errors.New("boom")

var update = flag.Bool("update", false, "write the table of metrics into docs/telemetry.md")

const doc = "../docs/telemetry.md"

// The documentation has exactly the existing metrics.
func TestDocs(t *testing.T) {
	const begin, end = "<!-- metrics: written by go test ./otelidem -run TestDocs -update -->\n",
		"<!-- end of metrics -->"
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(doc, []byte(before+begin+table()+end+after), 0o600))
		return
	}
	require.Equal(t, table(), have)
}

func table() string {
	var b strings.Builder
	b.WriteString("\n| metric | kind, unit | what | attributes |\n| --- | --- | --- | --- |\n")
	for _, m := range otelidem.Metrics() {
		fmt.Fprintf(&b, "| `%s` | %s, %s | %s | `%s` |\n", m.Name, m.Kind, m.Unit, m.Description,
			strings.Join(m.Attributes, "`, `"))
	}
	b.WriteString("\n")
	return b.String()
}

func TestNewRefuses(t *testing.T) {
	_, err := otelidem.New(nil, otelidem.MeterProvider(nil), otelidem.TracerProvider(nil),
		otelidem.Propagator(nil))
	require.ErrorContains(t, err, "nil option")
	for _, what := range []string{"MeterProvider", "TracerProvider", "Propagator"} {
		require.ErrorContains(t, err, what+" must not be nil")
	}
	o, err := otelidem.New() // the global providers, which do not record
	require.NoError(t, err)
	require.NoError(t, o.Close())
}

// refusing is a meter provider that refuses gauges.
type refusing struct{ metricnoop.MeterProvider }

type refusingMeter struct{ metricnoop.Meter }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

func (refusingMeter) Int64ObservableGauge(
	string, ...metric.Int64ObservableGaugeOption,
) (metric.Int64ObservableGauge, error) {
	return nil, errBoom
}

func TestNewFailsWithTheMeterProvider(t *testing.T) {
	_, err := otelidem.New(otelidem.MeterProvider(refusing{}))
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "metric idem.partition.lag")
}

// Processors reject observers without an interface that they know, and find all interfaces of this
// one.
func TestObserverImplementsWhatIsOnThePathForManyAtOnce(t *testing.T) {
	o, err := otelidem.New()
	require.NoError(t, err)
	defer o.Close()
	var observer any = o
	_, handled := observer.(observe.HandledObserver)
	_, claim := observer.(observe.ClaimObserver)
	require.False(t, handled || claim, "these report every event by itself")
}
