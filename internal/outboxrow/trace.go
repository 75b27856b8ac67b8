package outboxrow

import (
	"slices"

	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem"
)

// carrier is headers that a propagator can write.
type carrier []idem.Header

var _ propagation.TextMapCarrier = (*carrier)(nil)

// Get implements [propagation.TextMapCarrier].
func (c *carrier) Get(key string) string {
	for _, h := range *c {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (c *carrier) Set(key, value string) {
	*c = append(*c, idem.Header{Key: key, Value: []byte(value)})
}

// Keys implements [propagation.TextMapCarrier].
func (c *carrier) Keys() []string {
	keys := make([]string, len(*c))
	for i, h := range *c {
		keys[i] = h.Key
	}
	return keys
}

// hasAny reports whether one of headers has one of the names.
func hasAny(headers []idem.Header, names []string) bool {
	return slices.ContainsFunc(headers, func(h idem.Header) bool {
		return slices.Contains(names, h.Key)
	})
}
