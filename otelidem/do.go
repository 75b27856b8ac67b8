package otelidem

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem/dedup"
)

const attrDoOutcome = "idem.do.outcome"

var (
	mDoCalls = Metric{
		Name: "idem.do.calls", Kind: Counter, Unit: "{call}",
		Description: "Calls of dedup.Do and DoTx, by outcome.",
		Attributes:  []string{attrDoOutcome, attrTx},
	}
	mDoWait = Metric{
		Name: "idem.do.wait.duration", Kind: Histogram, Unit: "s", Buckets: storeBuckets,
		Description: "Time that a call waited for the store, and for other callers with its key, " +
			"before the function began or the call was answered without it.",
		Attributes: []string{attrDoOutcome, attrTx},
	}
)

// doMetrics are the metrics of guards.
var doMetrics = []*Metric{&mDoCalls, &mDoWait}

// doPart has the instruments of guards.
type doPart struct {
	calls metric.Int64Counter
	wait  metric.Float64Histogram
	sets  sets[doLabels]
}

type doLabels struct {
	outcome string
	tx      bool
}

func (l doLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String(attrDoOutcome, l.outcome),
		attribute.Bool(attrTx, l.tx)}
}

func (p *doPart) init(b *builder) {
	p.calls, p.wait = b.counter(&mDoCalls), b.seconds(&mDoWait)
	p.sets = sets[doLabels]{build: doLabels.attributes}
}

// ObserveDo is a function for [dedup.GuardConfig].Observe. The method counts the call, and adds an
// event "idem.do" with the key and the outcome to the caller's span.
func (o *Observer) ObserveDo(ctx context.Context, e dedup.DoEvent) {
	set := o.do.sets.get(doLabels{string(e.Outcome), e.Tx})
	o.do.calls.Add(ctx, 1, set.add...)
	o.do.wait.Record(ctx, e.Waited.Seconds(), set.record...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("idem.do", trace.WithAttributes(
			textAttribute(attrKey, e.Key.String()),
			attribute.String(attrDoOutcome, string(e.Outcome)), attribute.Bool(attrTx, e.Tx)))
	}
}
