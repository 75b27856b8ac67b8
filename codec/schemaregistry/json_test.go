package schemaregistry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem/codec/schemaregistry"
)

// A reference is found at its name, resolved against the $id of the schema that holds it.
func TestReferences_IDs(t *testing.T) {
	const money = `{"type":"object","properties":{"currency":{"$ref":"currency.json"}}}`
	withID := func(id, schema string) string { return `{"$id":"` + id + `",` + schema[1:] }
	for name, c := range map[string]struct {
		id, ref, name, money string
	}{
		"no $id":                    {"", "money.json", "money.json", money},
		"$id of the outer":          {"http://example.com/a/order.json", "money.json", "money.json", money},
		"$id with a fragment":       {"http://example.com/a/order.json#", "money.json", "money.json", money},
		"both have $id":             {"http://example.com/a/order.json", "money.json", "money.json", withID("http://example.com/a/money.json", money)},
		"another folder":            {"http://example.com/a/order.json", "../b/money.json", "../b/money.json", withID("http://example.com/b/money.json", money)},
		"address as a name":         {"http://example.com/a/order.json", "http://example.com/b/money.json", "http://example.com/b/money.json", withID("http://example.com/b/money.json", money)},
		"short name of an address":  {"http://example.com/a/order.json", "http://example.com/a/money.json", "money.json", money},
		"relative $id":              {"/a/order.json", "money.json", "money.json", money},
		"no $id, but the inner has": {"", "money.json", "money.json", withID("http://example.com/b/money.json", money)},
		"draft 4": {"", "money.json", "money.json",
			`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://example.com/c/money.json",` + money[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			server := fake(t)
			ref := func(name, subject string) []sr.SchemaReference {
				return []sr.SchemaReference{{Name: name, Subject: subject, Version: 1}}
			}
			outer := `{"type":"object","properties":{"price":{"$ref":"` + c.ref + `"}}}`
			if c.id != "" {
				outer = withID(c.id, outer)
			}
			server.SeedSchema("currency", 1, 5, sr.Schema{Schema: `{"enum":["EUR"]}`, Type: sr.TypeJSON})
			server.SeedSchema("money", 1, 6, sr.Schema{Schema: c.money, Type: sr.TypeJSON, References: ref("currency.json", "currency")})
			server.SeedSchema("outer", 1, 7, sr.Schema{Schema: outer, Type: sr.TypeJSON, References: ref(c.name, "money")})
			registry := open(t, server.URL())
			decode := func(currency string) error {
				value := "\x00\x00\x00\x00\x07" + `{"price":{"currency":"` + currency + `"}}`
				return registry.Decode(t.Context(), record("e1", "paid", 1, []byte(value)), new(any))
			}
			require.NoError(t, decode("EUR"))
			require.ErrorContains(t, decode("USD"), "does not fit")
		})
	}
}

// A JSON Schema without $schema has draft 7, as Confluent's serializers read it.
func TestJSON_Draft(t *testing.T) {
	server := fake(t)
	server.SeedSchema("s", 1, 7, sr.Schema{Schema: `{"items":[{"type":"integer"}],"additionalItems":false}`, Type: sr.TypeJSON})
	registry := open(t, server.URL())
	decode := func(value string) error {
		return registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07"+value)), new(any))
	}
	require.NoError(t, decode(`[1]`))
	for _, value := range []string{`["a"]`, `[1,2]`} {
		require.ErrorContains(t, decode(value), "does not fit")
	}
}

// A number of a value stands for as many digits as its exponent says. A check of such a number would
// take the lane for long, so the number is refused before.
func TestJSON_LargeNumbers(t *testing.T) {
	server := fake(t)
	server.SeedSchema("s", 1, 7, sr.Schema{Schema: `{"type":"array","items":{"type":"integer","minimum":0}}`, Type: sr.TypeJSON})
	server.SeedSchema("free", 1, 8, sr.Schema{Schema: `{"uniqueItems":true}`, Type: sr.TypeJSON})
	registry := open(t, server.URL())
	decode := func(id, value string) error {
		return registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00"+id+value)), new(json.RawMessage))
	}
	digits := strings.Repeat("9", 300)
	for _, value := range []string{
		`[1e308]`, `[1E+308]`, `[10e-1]`, `[1e000000000003]`, `[` + digits + `]`, `[0,7,12345678901234567890]`,
	} {
		require.NoError(t, decode("\x07", value), value)
		require.NoError(t, decode("\x08", value), value)
	}
	many := strings.Repeat(`1e999999,`, 1999)
	for name, value := range map[string]string{
		"many":                `[` + many + `1e999999]`,
		"beyond the library":  `[1e1000001]`,
		"small":               `[1e-1000001]`,
		"beyond an integer":   `[1E+99999999999999999999]`,
		"just beyond":         `[1e1001]`,
		"just below":          `[1e-1001]`,
		"digits":              `[` + digits + digits + `]`,
		"digits of a decimal": `[0.` + digits + digits + `]`,
		"in a member":         `[{"a":{"b":[1e1000001]}}]`,
		"the value":           `1e1000001`,
	} {
		for _, id := range []string{"\x07", "\x08"} {
			require.ErrorContains(t, decode(id, value), "a number has more than", name)
		}
	}

	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "free"})
	require.NoError(t, err)
	_, err = e.Encode(t.Context(), []json.Number{"1e1000001"})
	require.ErrorContains(t, err, "a number has more than")
}
