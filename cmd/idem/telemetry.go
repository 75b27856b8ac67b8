package main

import (
	"context"
	"log/slog"

	"github.com/idem-go/idem/cmd/idem/internal/telemetry"
	"github.com/idem-go/idem/otelidem"
)

// telemetryHelp describes the telemetry of a verb that runs until interrupted.
const telemetryHelp = "" +
	"The variables OTEL_* of OpenTelemetry turn metrics and traces on, such as\n" +
	"OTEL_METRICS_EXPORTER=prometheus, or OTEL_EXPORTER_OTLP_ENDPOINT for a collector."

// observe starts telemetry, if the variables of OpenTelemetry ask for it. end exports the rest, in
// at most three seconds.
func observe(
	ctx context.Context, service string, log *slog.Logger,
) (observer *otelidem.Observer, end func(), err error) {
	return telemetry.Observe(ctx, service, log)
}
