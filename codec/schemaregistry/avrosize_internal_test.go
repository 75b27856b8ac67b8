package schemaregistry

import (
	"fmt"
	"testing"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
)

// doubledRecord is a record with 2^levels leaves, of which it has the text of one.
func doubledRecord(levels int, leaf string) string {
	text := `{"type":"record","name":"A0","fields":[{"name":"x","type":` + leaf + `}]}`
	for i := range levels {
		text = fmt.Sprintf(
			`{"type":"record","name":"A%d","fields":[{"name":"x","type":%s},{"name":"y","type":"A%d"}]}`, i+1, text, i)
	}
	return text
}

func holding(field string) string {
	return `{"type":"record","name":"H","fields":[{"name":"id","type":"string"},{"name":"extra","type":` + field + `}]}`
}

func parsed(t *testing.T, text string) avro.Schema {
	s, err := avro.ParseWithCache(text, "", &avro.SchemaCache{})
	require.NoError(t, err)
	return s
}

func TestAvroTypes(t *testing.T) {
	array := func(items string) string { return `{"type":"array","items":` + items + `}` }
	for name, c := range map[string]struct {
		schema string
		want   int
	}{
		"text":               {`"string"`, 1},
		"array":              {array(`"string"`), 2},
		"map of arrays":      {`{"type":"map","values":` + array(`"string"`) + `}`, 3},
		"record":             {holding(`"int"`), 3},
		"doubled":            {doubledRecord(3, `"int"`), 1 + 2*(1+2*(1+2*2))},
		"doubled 40 times":   {doubledRecord(40, `"null"`), 1001},
		"in an array":        {holding(array(doubledRecord(40, `"int"`))), 1001},
		"in a union":         {holding(`["null",` + doubledRecord(3, `"int"`) + `]`), 23},
		"in a large union":   {holding(`["null",` + doubledRecord(40, `"int"`) + `]`), 1001},
		"unions in between":  {doubledRecord(2, `["null",`+holding(`"int"`)+`]`), 11},
		"tree":               {treeRecord, 3},
		"list":               {listRecord, 3},
		"holder of a tree":   {holder, 3},
		"every type":         {allTypes, 20},
		"a record of no use": {plainRecord, 4},
	} {
		require.Equal(t, c.want, avroTypes(parsed(t, c.schema), 1000), name)
	}
}

func TestResolvedTypes(t *testing.T) {
	record := func(fields string) string { return `{"type":"record","name":"R","fields":[` + fields + `]}` }
	for name, c := range map[string]struct {
		reader, writer string
		want           int
	}{
		"doubled":            {doubledRecord(3, `"long"`), doubledRecord(3, `"int"`), 3 + 2*(3+2*(3+2*3))},
		"doubled 40 times":   {doubledRecord(40, `"long"`), doubledRecord(40, `"int"`), 1001},
		"in unions":          {`["null",` + doubledRecord(40, `"long"`) + `]`, `["null",` + doubledRecord(40, `"int"`) + `]`, 1001},
		"a reader without":   {record(``), record(`{"name":"extra","type":` + doubledRecord(40, `"int"`) + `}`), 1},
		"by an alias":        {record(`{"name":"b","aliases":["a"],"type":"int"}`), record(`{"name":"a","type":"int"}`), 3},
		"other names":        {doubledRecord(40, `"int"`), record(``), 1},
		"a recursive writer": {record(`{"name":"id","type":"string"}`), `{"type":"record","name":"R","fields":[{"name":"id","type":"string"},{"name":"next","type":["null","R"]}]}`, 3},
	} {
		require.Equal(t, c.want, resolvedTypes(parsed(t, c.reader), parsed(t, c.writer), 1000), name)
	}
}

// A schema that takes all memory when a field is skipped, or when two are resolved, cannot be used.
func TestParseAvro_TooManyTypes(t *testing.T) {
	large := holding(`{"type":"array","items":` + doubledRecord(40, `"int"`) + `}`)
	_, err := parseAvro(large, nil, nil)
	require.ErrorIs(t, err, errAvroTypes)
	_, err = parseAvro(large, nil, map[string]avro.Schema{"H": parsed(t, `{"type":"record","name":"H","fields":[]}`)})
	require.ErrorIs(t, err, errAvroTypes)
	_, err = parseAvro(doubledRecord(40, `"int"`), nil, map[string]avro.Schema{"A40": parsed(t, doubledRecord(40, `"long"`))})
	require.ErrorIs(t, err, errAvroResolved)

	f, err := parseAvro(doubledRecord(4, `"int"`), nil, map[string]avro.Schema{"A4": parsed(t, doubledRecord(4, `"long"`))})
	require.NoError(t, err)
	require.NoError(t, f.decode(make([]byte, 16), nil, new(any)))
}
