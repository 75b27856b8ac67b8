package otelidem

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
)

const (
	attrHTTPOutcome   = "idem.http.outcome"
	attrClientOutcome = "idem.http.client.outcome"
	attrAttempts      = "idem.http.client.attempts"
)

var (
	mRequests = Metric{
		Name: "idem.http.requests", Kind: Counter, Unit: "{request}",
		Description: "Requests with an idempotency key, by outcome.",
		Attributes:  []string{attrHTTPOutcome, attrErrorType},
	}
	mRequestWait = Metric{
		Name: "idem.http.wait.duration", Kind: Histogram, Unit: "s", Buckets: storeBuckets,
		Description: "Time that such a request waited for the store, and for another request " +
			"with its key, before its handler began or the request was answered without it.",
		Attributes: []string{attrHTTPOutcome, attrErrorType},
	}
	mClientRequests = Metric{
		Name: "idem.http.client.requests", Kind: Counter, Unit: "{request}",
		Description: "Requests that were sent with an idempotency key: answered, replayed, or " +
			"unanswered after the last attempt.",
		Attributes: []string{attrClientOutcome},
	}
	mClientResends = Metric{
		Name: "idem.http.client.resends", Kind: Counter, Unit: "{attempt}",
		Description: "Further attempts of such requests, with the same key.",
		Attributes:  []string{attrClientOutcome},
	}
)

// httpMetrics are the metrics of requests with a key.
var httpMetrics = []*Metric{&mRequests, &mRequestWait, &mClientRequests, &mClientResends}

// httpPart has the instruments of HTTP.
type httpPart struct {
	requests, sent, resends metric.Int64Counter
	wait                    metric.Float64Histogram

	requestSets sets[requestLabels]
	clientSets  sets[string] // by outcome
}

type requestLabels struct{ outcome, err string }

func (l requestLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String(attrHTTPOutcome, l.outcome),
		attribute.String(attrErrorType, l.err)}
}

func (p *httpPart) init(b *builder) {
	p.requests, p.wait = b.counter(&mRequests), b.seconds(&mRequestWait)
	p.sent, p.resends = b.counter(&mClientRequests), b.counter(&mClientResends)
	p.requestSets = sets[requestLabels]{build: requestLabels.attributes}
	p.clientSets = sets[string]{build: func(outcome string) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String(attrClientOutcome, outcome)}
	}}
}

// ObserveRequest is a function for [httpidem.Config].Observe. The method counts the request, and
// sets the key and the outcome on the span of the request, which an HTTP instrumentation around the
// middleware starts. The key contains the principal, or a keyed hash of the principal with
// [httpidem.Config].PrincipalSecret.
func (o *Observer) ObserveRequest(ctx context.Context, e httpidem.Observation) {
	set := o.http.requestSets.get(requestLabels{string(e.Result), errorType(e.Err)})
	o.http.requests.Add(ctx, 1, set.add...)
	o.http.wait.Record(ctx, e.Waited.Seconds(), set.record...)
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrHTTPOutcome, string(e.Result)))
	if e.Key != (dedup.Key{}) {
		span.SetAttributes(textAttribute(attrKey, e.Key.String()))
	}
}

// ObserveSending is a function for [httpidem.Transport].Observe. The method counts the request, and
// adds an event "idem.http.sent" with the key and the number of attempts to the caller's span.
func (o *Observer) ObserveSending(ctx context.Context, e httpidem.Sending) {
	outcome := "answered"
	switch {
	case e.Err != nil:
		outcome = "unanswered"
	case e.Replayed:
		outcome = "replayed"
	}
	set := o.http.clientSets.get(outcome)
	o.http.sent.Add(ctx, 1, set.add...)
	if e.Attempts > 1 {
		o.http.resends.Add(ctx, int64(e.Attempts-1), set.add...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("idem.http.sent",
			trace.WithAttributes(textAttribute(attrKey, httpidem.KeyOf(e.Request)),
				attribute.String(attrClientOutcome, outcome),
				attribute.Int(attrAttempts, e.Attempts)))
	}
}
