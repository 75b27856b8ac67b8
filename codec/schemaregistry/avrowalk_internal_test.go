package schemaregistry

import (
	"io"
	"strings"
	"testing"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
)

// allTypes is a schema with every type. everything is a value of it.
const allTypes = `{"type":"record","name":"All","fields":[
	{"name":"null","type":"null"},{"name":"bool","type":"boolean"},{"name":"int","type":"int"},{"name":"long","type":"long"},
	{"name":"float","type":"float"},{"name":"double","type":"double"},{"name":"bytes","type":"bytes"},{"name":"string","type":"string"},
	{"name":"enum","type":{"type":"enum","name":"E","symbols":["A","B"]}},{"name":"fixed","type":{"type":"fixed","name":"F","size":3}},
	{"name":"again","type":["null","F"]},{"name":"array","type":{"type":"array","items":"string"}},
	{"name":"map","type":{"type":"map","values":{"type":"array","items":"int"}}},{"name":"nulls","type":{"type":"array","items":"null"}},
	{"name":"next","type":["null","All"]}]}`

func everything(next any) map[string]any {
	if next != nil {
		next = map[string]any{"All": next}
	}
	return map[string]any{
		"null": nil, "bool": true, "int": -70_000, "long": int64(-1) << 62, "float": float32(1), "double": 2.0,
		"bytes": []byte{1, 2}, "string": strings.Repeat("s", 300), "enum": "B", "fixed": [3]byte{7}, "again": map[string]any{"F": [3]byte{8}},
		"array": []any{"a", "", "c"}, "map": map[string]any{"k": []any{1, 2}, "": []any{}}, "nulls": []any{}, "next": next,
	}
}

func TestCheckAvro(t *testing.T) {
	array := func(items string) string { return `{"type":"array","items":` + items + `}` }
	for name, c := range map[string]struct {
		schema, payload string
		want            error
	}{
		"null":                   {`"null"`, "", nil},
		"string":                 {`"string"`, "\x04ab", nil},
		"string, cut":            {`"string"`, "\x04a", errAvroCut},
		"string, negative":       {`"string"`, "\x01", errAvroLength},
		"string, no length":      {`"string"`, "", errAvroCut},
		"long of 10 bytes":       {`"long"`, strings.Repeat("\xff", 9) + "\x01", nil},
		"long of 11 bytes":       {`"long"`, strings.Repeat("\xff", 10) + "\x01", errAvroNumber},
		"int of 5 bytes":         {`"int"`, strings.Repeat("\xff", 4) + "\x0f", nil},
		"int of 6 bytes":         {`"int"`, strings.Repeat("\xff", 5) + "\x01", errAvroNumber},
		"int, cut":               {`"int"`, "\xff", errAvroCut},
		"double, cut":            {`"double"`, "1234567", errAvroCut},
		"float":                  {`"float"`, "1234", nil},
		"boolean, cut":           {`"boolean"`, "", errAvroCut},
		"fixed, cut":             {`{"type":"fixed","name":"F","size":2}`, "a", errAvroCut},
		"branch":                 {`["null","int"]`, "\x02\x00", nil},
		"branch, too high":       {`["null","int"]`, "\x04", errAvroBranch},
		"branch, negative":       {`["null","int"]`, "\x01", errAvroBranch},
		"array, empty":           {array(`"string"`), "\x00", nil},
		"array, two blocks":      {array(`"string"`), "\x02\x02a\x02\x02b\x00", nil},
		"array, no end":          {array(`"string"`), "\x02\x02a", errAvroCut},
		"array, sized block":     {array(`"string"`), "\x01\x04\x02a\x00", nil},
		"array, block too short": {array(`"string"`), "\x01\x02\x02a\x00", errAvroLength},
		"array, block too long":  {array(`"string"`), "\x01\x06\x02a\x00", errAvroLength},
		"array, negative size":   {array(`"string"`), "\x01\x01\x02a\x00", errAvroLength},
		"array, highest count":   {array(`"string"`), "\xfe" + strings.Repeat("\xff", 8) + "\x01", errAvroCut},
		"array, lowest count":    {array(`"string"`), strings.Repeat("\xff", 9) + "\x01\x00", errAvroLength},
		"nulls":                  {array(`"null"`), "\x06\x00", nil},
		"nulls, too many":        {array(`"null"`), "\xfe" + strings.Repeat("\xff", 8) + "\x01\x00", errAvroEmpty},
		"nulls, by many arrays":  {array(array(`"null"`)), "\x04\x80\x80\x80\x0c\x00\x80\x80\x80\x0c\x00\x00", errAvroEmpty},
		"nulls, by many records": {doubledRecord(40, `"null"`), "", errAvroEmpty},
		"map":                    {`{"type":"map","values":"null"}`, "\x02\x02k\x00", nil},
		"map, highest count":     {`{"type":"map","values":"null"}`, "\xfe" + strings.Repeat("\xff", 8) + "\x01", errAvroCut},
		"record in itself":       {`{"type":"record","name":"S","fields":[{"name":"s","type":"S"}]}`, "", errAvroDepth},
		"list":                   {listRecord, strings.Repeat("\x00\x02", 4_000) + "\x00\x00", nil},
		"list, too deep":         {listRecord, strings.Repeat("\x00\x02", 8_000) + "\x00\x00", errAvroDepth},
	} {
		s, err := avro.ParseWithCache(c.schema, "", &avro.SchemaCache{})
		require.NoError(t, err)
		require.ErrorIs(t, checkAvro(s, []byte(c.payload)), c.want, name)
	}
}

// Each value without bytes counts, wherever it is.
func TestCheckAvro_Empty(t *testing.T) {
	for name, c := range map[string]struct {
		schema, payload string
		empty           int
	}{
		"nulls and records":      {doubledRecord(3, `"null"`), "", 8 + 15},
		"records in records":     {doubledRecord(3, `{"type":"record","name":"E","fields":[]}`), "", 8 + 15},
		"nulls and a number":     {`{"type":"record","name":"R","fields":[{"name":"n","type":"null"},{"name":"i","type":"int"}]}`, "\x02", 1},
		"nulls in an array":      {`{"type":"array","items":"null"}`, "\x06\x00", 3},
		"nulls in a map":         {`{"type":"map","values":"null"}`, "\x04\x02k\x02l\x00", 2},
		"nulls in a union":       {`["null","int"]`, "\x00", 1},
		"nothing fixed":          {`{"type":"array","items":{"type":"fixed","name":"F","size":0}}`, "\x06\x00", 3},
		"an empty array":         {`{"type":"array","items":"null"}`, "\x00", 0},
		"an array with an array": {`{"type":"array","items":{"type":"array","items":"null"}}`, "\x02\x04\x00\x00", 2},
	} {
		s := parsed(t, c.schema)
		w := avroWalk{rest: []byte(c.payload), empty: c.empty}
		require.NoError(t, w.value(s, 0), name)
		require.Zero(t, w.empty, name)
		if c.empty > 0 {
			w = avroWalk{rest: []byte(c.payload), empty: c.empty - 1}
			require.ErrorIs(t, w.value(s, 0), errAvroEmpty, name)
		}
	}
}

// A value that the library writes passes, with and without the sizes of blocks.
func TestCheckAvro_WrittenValues(t *testing.T) {
	s, err := avro.ParseWithCache(allTypes, "", &avro.SchemaCache{})
	require.NoError(t, err)
	for _, cfg := range []avro.Config{{}, {DisableBlockSizeHeader: true}, {BlockLength: 1}} {
		payload, err := cfg.Freeze().Marshal(s, everything(everything(nil)))
		require.NoError(t, err)
		require.NoError(t, checkAvro(s, payload))
		for n := range payload {
			require.ErrorIs(t, checkAvro(s, payload[:n]), errAvroCut)
		}
	}
}

// A payload that passes is read to its end, no more and no less, whether fields are decoded or
// skipped.
func FuzzCheckAvro(f *testing.F) {
	s, err := avro.ParseWithCache(allTypes, "", &avro.SchemaCache{})
	require.NoError(f, err)
	for _, cfg := range []avro.Config{{}, {DisableBlockSizeHeader: true}} {
		payload, err := cfg.Freeze().Marshal(s, everything(everything(nil)))
		require.NoError(f, err)
		f.Add(payload)
	}
	type nulls struct { // the library cannot skip a null outside a union
		Null  any   `avro:"null"`
		Nulls []any `avro:"nulls"`
		Next  any   `avro:"next"`
	}
	format := &avroFormat{writer: s, decoder: s}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w := avroWalk{rest: payload, empty: 1 << 10}
		if w.value(s, 0) != nil {
			return
		}
		payload = payload[:len(payload)-len(w.rest)]
		for _, into := range []any{new(nulls), new(any)} {
			err := format.decode(payload, nil, into) // an enum or a boolean may be invalid
			require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
			require.NotErrorIs(t, err, io.EOF)
			require.NotErrorIs(t, err, errAvroBehind)
		}
	})
}
