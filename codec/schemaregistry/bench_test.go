package schemaregistry_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem/codec/schemaregistry"
)

// BenchmarkDecode_Avro decodes one value with a cached schema.
func BenchmarkDecode_Avro(b *testing.B) {
	type line struct {
		Name  string `avro:"name"`
		Cents int64  `avro:"cents"`
	}
	type order struct {
		ID    string            `avro:"id"`
		Lines []line            `avro:"lines"`
		Notes map[string]string `avro:"notes"`
		Email *string           `avro:"email"`
	}
	schema := `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
			{"name":"name","type":"string"},{"name":"cents","type":"long"}]}}},
		{"name":"notes","type":{"type":"map","values":"string"}},{"name":"email","type":["null","string"]}]}`
	email := "someone@example.com"
	for name, c := range map[string]struct {
		schema      string
		value, into any
	}{
		"payment": {avroPayment, payment{"p1", 7}, new(payment)},
		"order": {
			schema, order{"o1", []line{{"tea", 500}, {"cups", 1_200}, {"a pot", 2_500}}, map[string]string{"gift": "yes"}, &email},
			new(order),
		},
	} {
		b.Run(name, func(b *testing.B) {
			server := fake(b)
			_, _, err := server.RegisterSchema("s", sr.Schema{Schema: c.schema})
			require.NoError(b, err)
			registry, err := schemaregistry.New(schemaregistry.Config{URLs: []string{server.URL()}})
			require.NoError(b, err)
			e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
			require.NoError(b, err)
			value, err := e.Encode(b.Context(), c.value)
			require.NoError(b, err)
			m := record("e1", "paid", 1, value)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, registry.Decode(b.Context(), m, c.into))
			}
		})
	}
}
