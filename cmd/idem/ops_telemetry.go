package main

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// opsRoutes are the paths below the page that metrics and spans name. Names of files and of pages
// that do not exist are left out, since a sender could invent any number.
var opsRoutes = []string{
	"", "event", "activity", "partitions", "claims", "deferred", "dead-letters", "dead-letter",
	"plan", "replay", "outbox", "doctor", "signin/callback", "signout",
}

// measured records the duration of each request, and makes a span of it, by the conventions of
// OpenTelemetry for HTTP. Neither has a user, a query or an address.
func measured(next http.Handler, prefix string) (http.Handler, error) {
	const scope = "github.com/idem-go/idem/cmd/idem"
	duration, err := otel.Meter(scope).Float64Histogram(
		"http.server.request.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of requests to the ops page."),
		metric.WithExplicitBucketBoundaries(
			0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
		),
	)
	if err != nil {
		return nil, err
	}
	tracer := otel.Tracer(scope)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		name, attrs := describeRequest(r, prefix)
		ctx, span := tracer.Start(
			r.Context(), name, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attrs...),
		)
		defer span.End()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r.WithContext(ctx))
		status := attribute.Int("http.response.status_code", seen.status)
		span.SetAttributes(status)
		if seen.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		duration.Record(ctx, time.Since(began).Seconds(),
			metric.WithAttributes(append(attrs, status)...))
	}), nil
}

func describeRequest(r *http.Request, prefix string) (name string, attrs []attribute.KeyValue) {
	method := r.Method
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, method) {
		method = "_OTHER"
	}
	name = method
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	attrs = []attribute.KeyValue{
		attribute.String("http.request.method", method), attribute.String("url.scheme", scheme),
	}
	if page, ok := strings.CutPrefix(r.URL.Path, prefix); ok && slices.Contains(opsRoutes, page) {
		name += " " + prefix + page
		attrs = append(attrs, attribute.String("http.route", prefix+page))
	}
	return name, attrs
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	begun  bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *statusWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap serves [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
