package outboxrow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// Rows that other programs wrote are published with any headers.
func TestForeignHeaders(t *testing.T) {
	for _, text := range []string{`{"a": 1}`, `[{"k": 1}]`, `[{"k": "a", "b": "?"}]`, `"x"`} {
		require.Equal(t, []idem.Header{{Key: headerRaw, Value: []byte(text)}}, DecodeHeaders(&text))
	}
	require.Nil(t, DecodeHeaders(nil))
}

// Headers come back as they were: order, copies of one name, bytes that are no text, null and
// empty. The value of the column is JSON without the one character that a column of that type
// refuses.
func FuzzHeaders(f *testing.F) {
	f.Add("a", []byte("text"), "a", []byte{0xff, 0}, false)
	f.Add("ü", []byte{}, "\u2028<&>", []byte("a\x00b"), true)
	f.Fuzz(func(t *testing.T, name1 string, value1 []byte, name2 string, value2 []byte, null bool) {
		in := []idem.Header{{Key: name1, Value: value1}, {Key: name2, Value: value2}, {Key: name1, Value: []byte("\\u0000")}}
		e := outbox.Entry{Topic: "t", Type: "t", ID: "i", Headers: in}
		if e.Check(1<<30) != nil {
			t.Skip() // Add refuses them
		}
		for i := range in[:2] {
			if in[i].Value == nil {
				in[i].Value = []byte{}
			}
		}
		if null {
			in[1].Value = nil
		}
		column, err := EncodeHeaders(in)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(*column)))
		require.Equal(t, in, DecodeHeaders(column))
	})
}
