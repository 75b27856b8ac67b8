package schemaregistry

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
)

// A schema with a number that cannot be checked cannot be used. A reference is refused too.
func TestParseJSON_LargeNumbers(t *testing.T) {
	large := sr.Schema{Schema: `{"multipleOf":1e1000001}`, Type: sr.TypeJSON}
	_, err := parseJSON(large, nil)
	require.ErrorIs(t, err, errNumber)
	outer := sr.Schema{
		Schema: `{"$ref":"inner.json"}`, Type: sr.TypeJSON,
		References: []sr.SchemaReference{{Name: "inner.json"}},
	}
	_, err = parseJSON(outer, []reference{{"inner.json", large}})
	require.ErrorIs(t, err, errNumber)
}

func TestCheckableNumber(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-7.25": true, "1e3": true, "1E+1000": true, "1e-1000": true, "1e0000003": true,
		"1e1001": false, "-1E+1001": false, "1e-1001": false, "1e99999999999999999999": false,
		strings.Repeat("9", maxNumber): true, strings.Repeat("9", maxNumber+1): false,
		"0." + strings.Repeat("0", maxNumber): false, strings.Repeat("9", maxNumber) + "e1": false,
	} {
		require.Equal(t, want, checkableNumber(text), text)
	}
}
