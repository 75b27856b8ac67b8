// Package telemetry gives programs OpenTelemetry's exporters. The standard variables of
// OpenTelemetry configure them. Without one of these variables everything is off: no port is open
// and no goroutine runs. The command and the examples have the same files, in two modules.
//
//	OTEL_METRICS_EXPORTER=prometheus   metrics at http://localhost:9464/metrics
//	                                   (OTEL_EXPORTER_PROMETHEUS_HOST, _PORT)
//	OTEL_METRICS_EXPORTER=otlp         metrics to a collector
//	OTEL_TRACES_EXPORTER=otlp          spans to a collector
//	OTEL_EXPORTER_OTLP_ENDPOINT=...    address of the collector; alone it turns both on
//	                                   (also _METRICS_ENDPOINT, _TRACES_ENDPOINT)
//	OTEL_SDK_DISABLED=true             no telemetry, regardless of the other variables
//
// All other variables of OpenTelemetry work too, for example OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	metricapi "go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem/otelidem"
)

// shutdownTime bounds the time of a shutdown. If the collector is down, the last metrics and spans
// are lost.
const shutdownTime = 3 * time.Second

// Start sets the global providers of metrics and traces. The environment chooses them. Without a
// choice they are providers without effect. serviceName is the default of service.name.
//
// Start logs one line when an export fails and one when exports work again. The lines show no
// header and no password of the environment. The arguments and the variables of the process do not
// become attributes, because they may hold passwords.
//
// shutdown exports the rest and stops all exporters, in at most three seconds, or until its context
// ends. Its error has been logged. The providers are global, so Start may be called again only
// after shutdown.
func Start(
	ctx context.Context, serviceName string, log *slog.Logger,
) (shutdown func(context.Context) error, err error) {
	metrics, traces := wants("METRICS"), wants("TRACES")
	nothing() // signals without an exporter have no cost
	if !metrics && !traces {
		return func(context.Context) error { return nil }, nil
	}
	secrets := secretsOf(os.Getenv)
	otel.SetLogger(logr.FromSlogHandler(&misconfigured{log: log}))
	res, err := resource.New(ctx,
		resource.WithService(), // an ID of this run, for several processes of one name
		resource.WithAttributes(attribute.String("service.name", serviceName)),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last one wins
	if err != nil {
		return nil, errors.New("telemetry: OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	s := &started{}
	if metrics {
		err = s.startMetrics(ctx, res, newState(log, "metrics", secrets))
	}
	if traces && err == nil {
		err = s.startTraces(ctx, res, newState(log, "spans", secrets))
	}
	if err != nil { // not wrapped: the inner error may quote a password
		err = errors.Join(err, s.shutdown(ctx))
		return nil, fmt.Errorf("telemetry: %s", secrets.mask(err.Error()))
	}
	return s.shutdown, nil
}

// Observe starts telemetry as [Start] does, and returns an observer for it. end closes both.
func Observe(
	ctx context.Context, serviceName string, log *slog.Logger,
) (observer *otelidem.Observer, end func(), err error) {
	shutdown, err := Start(ctx, serviceName, log)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = shutdown(context.WithoutCancel(ctx)) } // the error has been logged
	observer, err = otelidem.New()
	if err != nil {
		stop()
		return nil, nil, err
	}
	return observer, func() {
		stop() // the last export reads the metrics of the observer
		_ = observer.Close()
	}, nil
}

// nothing sets providers without effect.
func nothing() {
	otel.SetMeterProvider(metricnoop.NewMeterProvider())
	otel.SetTracerProvider(tracenoop.NewTracerProvider())
}

// wants reports whether the environment asks for a signal. Without a choice the SDK would export to
// a collector at localhost.
func wants(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "none":
		return false
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
			os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
	return true
}

// started holds the functions that end the exporters. The last one runs first.
type started struct{ ends []func(context.Context) error }

func (s *started) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	var err error
	for len(s.ends) > 0 {
		last := len(s.ends) - 1
		err = errors.Join(err, s.ends[last](ctx))
		s.ends = s.ends[:last]
	}
	return err
}

func (s *started) startMetrics(ctx context.Context, res *resource.Resource, state *state) error {
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(res))
	var ending atomic.Bool
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !ending.Load() {
			state.failed(err)
		}
	}))
	otel.SetMeterProvider(provider)
	s.ends = append(s.ends, func(ctx context.Context) error {
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
		// Shutdown cuts an export in flight and then exports all metrics once more. The error of
		// Shutdown is that of the last export.
		ending.Store(true)
		err := provider.Shutdown(ctx)
		if err != nil {
			state.failed(err)
		}
		return err
	})
	return watch(provider, state)
}

// watch detects that metrics are exported again, because the SDK reports failures only. The SDK
// asks for observations before each export. If no export failed since the last observation, the
// export between succeeded.
func watch(provider *metric.MeterProvider, state *state) error {
	meter := provider.Meter("github.com/idem-go/idem/internal/telemetry")
	// never observed, so never exported
	beat, err := meter.Int64ObservableGauge("idem.telemetry.beat")
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(context.Context, metricapi.Observer) error {
		state.turn()
		return nil
	}, beat)
	return err
}

func (s *started) startTraces(ctx context.Context, res *resource.Resource, state *state) error {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	if len(s.ends) == 0 { // otherwise metrics have set it
		otel.SetErrorHandler(otel.ErrorHandlerFunc(state.failed))
	}
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	watched := &spanExporter{SpanExporter: exporter, state: state, life: life}
	provider := trace.NewTracerProvider(trace.WithBatcher(watched), trace.WithResource(res))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	s.ends = append(s.ends, func(ctx context.Context) error {
		otel.SetTracerProvider(tracenoop.NewTracerProvider())
		defer cut()
		err := provider.Shutdown(ctx)
		if err != nil {
			state.failed(err)
		}
		return err
	})
	return nil
}
