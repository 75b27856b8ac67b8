package schemaregistry

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
)

// Two values are equal elements exactly if the library says so.
func TestEqualElements(t *testing.T) {
	library, err := compileJSON(sr.Schema{Schema: `{"uniqueItems":true}`}, nil, func(*jsonschema.Compiler) {})
	require.NoError(t, err)
	texts := []string{
		`null`, `true`, `false`, `""`, `"null"`, `"true"`, `"1"`, `"1e0"`, `","`, `"é"`, `"\u00e9"`,
		`0`, `-0`, `0.0`, `0e5`, `-0.00E-7`, `1`, `-1`, `1.0`, `-1.00`, `1e0`, `10`, `100e-1`, `1E+1`,
		`0.1`, `1e-1`, `-0.01e1`, `1e1000`, `10e999`, `1e-1000`, `0.1e-999`,
		`1.5`, `15e-1`, `150E-2`, `-1.5`, `105`, `15`, `258`, `513`, `0.5`,
		`[]`, `[[]]`, `[[],[]]`, `[null]`, `[1]`, `[-1]`, `[1.0]`, `[1,2]`, `[2,1]`, `[12]`,
		`[[1],2]`, `[[1,2]]`, `[[1],[2]]`, `["a","b"]`, `["a,b"]`, `["a\",\"b"]`, `["a\u0004b"]`,
		`{}`, `[{}]`, `{"a":1}`, `{"a":-1}`, `{"a":1.0}`, `{"a":null}`, `{"":1}`, `{"a:1,b":2}`,
		`{"a":1,"b":2}`, `{"b":2,"a":1e0}`, `{"a":{"b":2}}`, `{"a":1,"b":{}}`, `{"a":{"b":{}}}`,
	}
	for i, a := range texts {
		for _, b := range texts[i:] {
			v, err := readJSON(strings.NewReader("[" + a + "," + b + "]"))
			require.NoError(t, err)
			_, _, found := equalElements(v.([]any), func(int64) {})
			require.Equal(t, library.Validate(v) != nil, found, "%s and %s", a, b)
		}
	}
}

// The steps grow with the size of the elements, whatever they are.
func TestEqualElements_Steps(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		steps int64
	}{
		"nothing":        {`[]`, 0},
		"short elements": {`[null,1,"a"]`, 3},
		"a long text":    {`["` + strings.Repeat("x", 798) + `",true]`, 1 + 100 + 1},
		"a long name":    {`[{"` + strings.Repeat("x", 798) + `":1}]`, 1 + 100},
		"nested":         {`[` + array(3, `[1,2]`) + `]`, 1 + (2+3*(2+2*4+1))/8},
		"signs":          {signs(100, 7), 100*5 - 8}, // with at most one minus, a text is shorter
	} {
		v, err := readJSON(strings.NewReader(c.value))
		require.NoError(t, err)
		var steps int64
		_, _, found := equalElements(v.([]any), func(n int64) { steps += n })
		require.False(t, found, name)
		require.Equal(t, c.steps, steps, name)
	}
}

// The places of the first two equal elements are returned.
func TestEqualElements_Places(t *testing.T) {
	v, err := readJSON(strings.NewReader(`[1,2,{"a":[-3.0]},4,{"a":[-3]},2]`))
	require.NoError(t, err)
	i, j, found := equalElements(v.([]any), func(int64) {})
	require.True(t, found)
	require.Equal(t, []int{2, 4}, []int{i, j})
}
