package otelidem

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// maxHeader bounds the headers that are read, in bytes: baggage may have 8 KiB.
const maxHeader = 8 << 10

// headerCarrier gives a propagator the headers of a record. Names match in any case, because HTTP
// changes the case of headers. Of several headers with one name the last counts, as in Kafka's own
// clients. The values of tracestate are joined, as the W3C recommendation requires.
type headerCarrier []idem.Header

// Get returns a value, or empty text.
func (c headerCarrier) Get(key string) string {
	if strings.EqualFold(key, "tracestate") {
		return strings.Join(c.Values(key), ",")
	}
	for i := len(c) - 1; i >= 0; i-- {
		if c.has(i, key) {
			return string(c[i].Value)
		}
	}
	return ""
}

// Values returns all values, in their order.
func (c headerCarrier) Values(key string) (values []string) {
	size := 0
	for i := range c {
		if c.has(i, key) {
			if size += len(c[i].Value); size > maxHeader {
				return nil
			}
			values = append(values, string(c[i].Value))
		}
	}
	return values
}

func (c headerCarrier) has(i int, key string) bool {
	h := &c[i]
	return len(h.Key) == len(key) && len(h.Value) <= maxHeader &&
		(h.Key == key || strings.EqualFold(h.Key, key))
}

// Set has no effect: records are only read here.
func (c headerCarrier) Set(string, string) {}

// Keys returns the names.
func (c headerCarrier) Keys() (keys []string) {
	for _, h := range c {
		keys = append(keys, h.Key)
	}
	return keys
}

const traceparent = "traceparent"

func isOnlyW3C(fields []string) bool {
	for _, f := range fields {
		if f != traceparent && f != "tracestate" && f != "baggage" {
			return false
		}
	}
	return slices.Contains(fields, traceparent)
}

// mayHave reports whether the propagator may find a span in the headers, at a lower cost than the
// propagator. Most records have no such header, and the last digit of a W3C header shows whether it
// is sampled.
func (o *Observer) mayHave(m *idem.Message, sampledOnly bool) bool {
	c := headerCarrier(m.Headers)
	for i := len(c) - 1; i >= 0; i-- {
		for _, f := range o.fields {
			if !c.has(i, f) {
				continue
			}
			if o.onlyW3C && f == traceparent {
				return !sampledOnly || isSampled(c[i].Value)
			}
			if !o.onlyW3C {
				return true
			}
		}
	}
	return false
}

// isSampled reads the flags of a traceparent, the last of version-trace-span-flags.
func isSampled(v []byte) bool {
	const flags = 54 // the second digit of the flags
	if len(v) <= flags {
		return false
	}
	switch v[flags] {
	case '1', '3', '5', '7', '9', 'b', 'd', 'f', 'B', 'D', 'F':
		return true
	}
	return false
}

// producerOf returns the span of m's producer, if it was sampled.
func (o *Observer) producerOf(m *idem.Message) trace.SpanContext {
	if !o.mayHave(m, true) {
		return trace.SpanContext{}
	}
	sc := trace.SpanContextFromContext(o.prop.Extract(context.Background(),
		headerCarrier(m.Headers)))
	if !sc.IsValid() || !sc.IsSampled() {
		return trace.SpanContext{}
	}
	return sc
}
