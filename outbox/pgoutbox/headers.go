package pgoutbox

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem"
)

// header is an element of the column headers. A value that is text stays readable. Any other value
// is in base64. A header without a value has neither; for Kafka that is not an empty value.
type header struct {
	Name  string  `json:"k"`
	Text  *string `json:"v,omitempty"`
	Bytes []byte  `json:"b,omitempty"`
}

// headerRaw is the header of a record whose column cannot be decoded: other programs may write
// rows.
const headerRaw = "outbox-headers"

// encodeHeaders returns the value of the column: nil without headers.
func encodeHeaders(headers []idem.Header) (*string, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	out := make([]header, len(headers))
	for i, h := range headers {
		out[i].Name = h.Key
		switch text := string(h.Value); {
		case h.Value == nil:
		case utf8.ValidString(text) && !strings.ContainsRune(text, 0):
			out[i].Text = &text
		default:
			out[i].Bytes = h.Value
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}

// decodeHeaders is the inverse of encodeHeaders.
func decodeHeaders(column *string) []idem.Header {
	if column == nil {
		return nil
	}
	var in []header
	if err := json.Unmarshal([]byte(*column), &in); err != nil {
		return []idem.Header{{Key: headerRaw, Value: []byte(*column)}}
	}
	var headers []idem.Header
	for _, h := range in {
		value := h.Bytes
		if h.Text != nil {
			value = []byte(*h.Text)
		}
		headers = append(headers, idem.Header{Key: h.Name, Value: value})
	}
	return headers
}

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
