// Package telemetry gives the examples OpenTelemetry's exporters, by the standard variables and by nothing else: without one of
// them everything is off, no port is opened, no goroutine runs.
//
//	OTEL_METRICS_EXPORTER=prometheus   metrics at http://localhost:9464/metrics (OTEL_EXPORTER_PROMETHEUS_HOST, _PORT)
//	OTEL_METRICS_EXPORTER=otlp         metrics to a collector
//	OTEL_TRACES_EXPORTER=otlp          spans to a collector
//	OTEL_EXPORTER_OTLP_ENDPOINT=...    where it is; alone it turns both on (also _METRICS_ENDPOINT, _TRACES_ENDPOINT)
//	OTEL_SDK_DISABLED=true             nothing, whatever the others say
//
// Anything else that OpenTelemetry has a variable for works too: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER
// and so on.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
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

// shutdownTime bounds what shutdown takes, if nothing shorter does: with a collector that is away the last metrics and spans
// are lost, and the program ends all the same.
const shutdownTime = 3 * time.Second

// Start sets the global providers of metrics and traces to what the environment asks for, and to those that do nothing if it asks
// for nothing. serviceName is service.name unless the environment has another.
//
// What goes wrong later goes to log: a line when metrics or spans can no longer be exported, and one when they can again. No
// line has a header or a password of the environment in it. Neither the arguments of the process nor its variables become
// attributes, as they have passwords.
//
// shutdown exports what is left, ends all that was started, and takes three seconds at most, or as long as its context. Its error
// has been logged. Start again only after it: the providers are global.
func Start(ctx context.Context, serviceName string, log *slog.Logger) (shutdown func(context.Context) error, err error) {
	metrics, traces := wants("METRICS"), wants("TRACES")
	nothing() // what is not wanted costs nothing
	if !metrics && !traces {
		return func(context.Context) error { return nil }, nil
	}
	secrets := secretsOf(os.Getenv)
	otel.SetLogger(logr.FromSlogHandler(&misconfigured{log: log}))
	res, err := resource.New(ctx,
		resource.WithService(), // an ID for this run: two processes of one name are two
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
	if err != nil { // not wrapped: what is inside may have been made of a password
		return nil, fmt.Errorf("telemetry: %s", secrets.mask(errors.Join(err, s.shutdown(ctx)).Error()))
	}
	return s.shutdown, nil
}

// Observe starts telemetry as [Start] does, and returns an observer that measures with it. end closes
// both.
func Observe(
	ctx context.Context, serviceName string, log *slog.Logger,
) (observer *otelidem.Observer, end func(), err error) {
	shutdown, err := Start(ctx, serviceName, log)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = shutdown(context.WithoutCancel(ctx)) } // its error has been logged
	observer, err = otelidem.New()
	if err != nil {
		stop()
		return nil, nil, err
	}
	return observer, func() {
		_ = observer.Close()
		stop()
	}, nil
}

// nothing sets providers that do nothing.
func nothing() {
	otel.SetMeterProvider(metricnoop.NewMeterProvider())
	otel.SetTracerProvider(tracenoop.NewTracerProvider())
}

// wants reports whether the environment asks for a signal. The SDK would also export if nobody says anything: to a collector at
// localhost, which an example should not expect.
func wants(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "none":
		return false
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
	return true
}

// started is what has to be ended, the last first.
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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(state.failed))
	otel.SetMeterProvider(provider)
	s.ends = append(s.ends, func(ctx context.Context) error {
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
		err := provider.Shutdown(ctx)
		if err != nil {
			state.failed(err)
		}
		return err
	})
	return watch(provider, state)
}

// watch finds out that metrics are exported again: the SDK says only when they are not. It asks for observations before each
// export; if nothing has failed since it asked before, the export between succeeded.
func watch(provider *metric.MeterProvider, state *state) error {
	meter := provider.Meter("github.com/idem-go/idem/examples/internal/telemetry")
	beat, err := meter.Int64ObservableGauge("idem.example.beat") // never observed, so never exported
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
	if len(s.ends) == 0 { // else it is that of metrics
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
