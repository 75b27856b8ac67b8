package outboxrow

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// header is an element of the column headers. A value that is text stays readable. Any other value
// is in base64. A header without a value has neither: Kafka distinguishes no value from an empty
// value.
type header struct {
	Name  string  `json:"k"`
	Text  *string `json:"v,omitempty"`
	Bytes []byte  `json:"b,omitempty"`
}

// headerRaw is the header of a record that carries a column that cannot be decoded. Other programs
// may write rows.
const headerRaw = "outbox-headers"

// EncodeHeaders returns the value of the column headers: nil without headers.
func EncodeHeaders(headers []idem.Header) (*string, error) {
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

// DecodeHeaders is the inverse of EncodeHeaders.
func DecodeHeaders(column *string) []idem.Header {
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
