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
		Description: "Requests with an idempotency key, by what became of them.",
		Attributes:  []string{attrHTTPOutcome, attrErrorType},
	}
	mRequestWait = Metric{
		Name: "idem.http.wait.duration", Kind: Histogram, Unit: "s", Buckets: storeBuckets,
		Description: "How long such a request waited for the store, and for another one with its key, before its handler began or it was answered without.",
		Attributes:  []string{attrHTTPOutcome, attrErrorType},
	}
	mClientRequests = Metric{
		Name: "idem.http.client.requests", Kind: Counter, Unit: "{request}",
		Description: "Requests that were sent under an idempotency key: answered, replayed, or unanswered at last.",
		Attributes:  []string{attrClientOutcome},
	}
	mClientResends = Metric{
		Name: "idem.http.client.resends", Kind: Counter, Unit: "{attempt}",
		Description: "Further attempts of such requests, under the same key.",
		Attributes:  []string{attrClientOutcome},
	}
)

// httpMetrics are those of requests with a key.
var httpMetrics = []*Metric{&mRequests, &mRequestWait, &mClientRequests, &mClientResends}

// httpPart is the instruments of HTTP.
type httpPart struct {
	requests, sent, resends metric.Int64Counter
	wait                    metric.Float64Histogram

	requestSets sets[requestLabels]
	clientSets  sets[string] // by outcome
}

type requestLabels struct{ outcome, err string }

func (l requestLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String(attrHTTPOutcome, l.outcome), attribute.String(attrErrorType, l.err)}
}

func (p *httpPart) init(b *builder) {
	p.requests, p.wait = b.counter(&mRequests), b.seconds(&mRequestWait)
	p.sent, p.resends = b.counter(&mClientRequests), b.counter(&mClientResends)
	p.requestSets = sets[requestLabels]{build: requestLabels.attributes}
	p.clientSets = sets[string]{build: func(outcome string) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String(attrClientOutcome, outcome)}
	}}
}

// ObserveRequest is a [httpidem.Config].Observe. It counts, and puts the key and the outcome on the span that the request is in: that
// of an instrumentation of HTTP around the middleware. The key has the principal in it, or a keyed hash of the principal where
// [httpidem.Config].PrincipalSecret is set.
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

// ObserveSending is a [httpidem.Transport].Observe. It counts, and adds an event "idem.http.sent" with the key and the number of attempts to the span
// that the request is sent in.
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
		span.AddEvent("idem.http.sent", trace.WithAttributes(textAttribute(attrKey, httpidem.KeyOf(e.Request)),
			attribute.String(attrClientOutcome, outcome), attribute.Int(attrAttempts, e.Attempts)))
	}
}
