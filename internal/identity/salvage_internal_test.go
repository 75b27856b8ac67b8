package identity

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The complete members of a broken object are found, and no others.
func TestSalvage(t *testing.T) {
	for data, want := range map[string]string{
		``: ``, `x`: ``, `[1,`: ``, `"a"`: ``, `{`: ``, `{"a`: ``, `{"a":`: ``, `{"a":1`: ``, `{"a":"1`: ``,
		`{"a":"1"`:                `{}`,
		`{"a":"1",`:               `{"a":"1"}`,
		` {"a":12,"b":34`:         ` {"a":12}`,
		`{"a":12 x`:               `{"a":12}`,
		`{"a":1,}`:                `{"a":1}`,
		`{"a":1}}`:                `{"a":1}`,
		`{"a":1} and more`:        `{"a":1}`,
		`{"a":1 "b":2}`:           `{"a":1}`,
		`{"a":1,"b":oops,"c":3}`:  `{"a":1}`,
		`{"a":1,b:2}`:             `{"a":1}`,
		`{"a":{"b":1,"c":`:        `{"a":{"b":1}}`,
		`{"a":{"b":1},"c":`:       `{"a":{"b":1}}`,
		`{"a":[1,{"b":2},`:        `{"a":[1,{"b":2}]}`,
		`{"a":[1,2`:               `{"a":[1]}`,
		`{"a":[],"b":{},"c":[1,,`: `{"a":[],"b":{},"c":[1]}`,
		`{"a":1,"b":{"c"`:         `{"a":1}`,
	} {
		if want == `{}` { // a string is complete, and no text after it shows a mistake
			want = ``
		}
		require.Equal(t, want, string(Salvage([]byte(data))), "%s", data)
	}
	deep := strings.Repeat(`{"a":`, 1000)
	require.Empty(t, Salvage([]byte(deep)))
	require.NotNil(t, Salvage([]byte(`{"x":1,`+`"y":`+deep)))
}

// For each value the result is an object of JSON, and no part of a member is in it.
func FuzzSalvage(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,"x",null]},"c":tru`, `{"\u00e9":-1.5e3,`, `{"a":[[[1],`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := Salvage(data)
		if got != nil && (!json.Valid(got) || !strings.HasPrefix(strings.TrimLeft(string(got), " \t\r\n"), "{")) {
			t.Fatalf("%q becomes %q", data, got)
		}
	})
}
