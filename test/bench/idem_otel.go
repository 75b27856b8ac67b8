package main

import (
	"context"
	"errors"
	"io"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/idem-go/idem/otelidem"
)

// idemOnBatchTxOtel is idemOnBatchTx with telemetry. Every metric is read and encoded each second,
// more often than usual. Every span is made, batched and encoded. The encodings, as JSON, are
// dropped.
func idemOnBatchTxOtel(ctx context.Context, x *run) (err error) {
	metrics, err := stdoutmetric.New(stdoutmetric.WithWriter(io.Discard))
	if err != nil {
		return err
	}
	spans, err := stdouttrace.New(stdouttrace.WithWriter(io.Discard))
	if err != nil {
		return err
	}
	meters := metric.NewMeterProvider(
		metric.WithReader(metric.NewPeriodicReader(metrics, metric.WithInterval(time.Second))),
	)
	tracers := trace.NewTracerProvider(trace.WithBatcher(spans))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWait)
		defer cancel()
		err = errors.Join(err, meters.Shutdown(ctx), tracers.Shutdown(ctx))
	}()
	seen, err := otelidem.New(
		otelidem.MeterProvider(meters),
		otelidem.TracerProvider(tracers),
		otelidem.Propagator(propagation.TraceContext{}),
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	return consumeIdem(ctx, x, x.postgres(), batchTxRouter(x), seen)
}
