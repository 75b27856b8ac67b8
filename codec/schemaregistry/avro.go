package schemaregistry

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/hamba/avro/v2"
)

// maxAvro limits the bytes of one string and the elements of one array, so that a corrupt length
// does not take the memory.
const maxAvro = 16 << 20

var avroAPI = avro.Config{MaxByteSliceSize: maxAvro, MaxSliceAllocSize: maxAvro}.Freeze()

type avroFormat struct {
	writer  avro.Schema
	decoder avro.Schema // writer, resolved to the reader's schema
	atOnce  bool        // a record of decoder contains itself without a union in between
	fit     sync.Map    // reflect.Type: types that passed checkSkips; empty unless atOnce
}

func parseAvro(text string, refs []reference, readers map[string]avro.Schema) (format, error) {
	cache := &avro.SchemaCache{} // not the global one: names belong to this schema
	for _, ref := range refs {
		if _, err := avro.ParseWithCache(ref.source.Schema, "", cache); err != nil {
			return nil, fmt.Errorf("reference %s: %w", ref.name, err)
		}
	}
	writer, err := avro.ParseWithCache(text, "", cache)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	f := &avroFormat{writer: writer, decoder: writer}
	if reader := readers[f.name(nil)]; reader != nil {
		if f.decoder, err = resolveAvro(reader, writer); err != nil {
			return nil, fmt.Errorf("resolve to the schema of Config.AvroReaders: %w", err)
		}
	}
	if avroTypes(f.decoder, maxAvroTypes) > maxAvroTypes {
		return nil, errAvroTypes
	}
	f.atOnce = loopsAtOnce(f.decoder)
	return f, nil
}

var errRecursive = errors.New("a recursive schema cannot be resolved to another one")

// resolveAvro resolves a writer's schema to a reader's, unless that would take the whole stack or the
// memory.
func resolveAvro(reader, writer avro.Schema) (avro.Schema, error) {
	switch {
	case !loops(writer): // resolving ends where the writer's schema ends
	case reader.Fingerprint() == writer.Fingerprint():
		return reader, nil
	case loops(reader), loopsAtOnce(writer): // the second: the reader lacks a field that loops
		return nil, errRecursive
	}
	if resolvedTypes(reader, writer, maxAvroResolved) > maxAvroResolved {
		return nil, errAvroResolved
	}
	return avro.NewSchemaCompatibility().Resolve(reader, writer) //nolint:wrapcheck // the caller adds the config's field
}

// fits returns an error if decoding into that value would take the whole stack.
func (f *avroFormat) fits(into any) error {
	v := reflect.ValueOf(into)
	if !f.atOnce || v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	if inner := v.Elem(); inner.Kind() == reflect.Interface && inner.Elem().Kind() == reflect.Pointer {
		v = inner.Elem() // the library decodes into that pointer
	}
	t := v.Type().Elem()
	if _, ok := f.fit.Load(t); ok {
		return nil
	}
	if err := checkSkips(f.decoder, t); err != nil {
		return err
	}
	f.fit.Store(t, true)
	return nil
}

var errAvroBehind = errors.New("decode Avro: there are bytes behind the value")

func (f *avroFormat) decode(payload []byte, _ []int, into any) error {
	if err := f.fits(into); err != nil {
		return fmt.Errorf("decode Avro: %w", err)
	}
	if err := checkAvro(f.writer, payload); err != nil {
		return fmt.Errorf("decode Avro: %w", err)
	}
	reader := avro.NewReader(nil, 0, avro.WithReaderConfig(avroAPI)).Reset(payload)
	reader.ReadVal(f.decoder, into)
	if reader.Error != nil {
		return fmt.Errorf("decode Avro: %w", reader.Error)
	}
	if reader.Read(make([]byte, 1)); reader.Error == nil {
		return errAvroBehind
	}
	return nil
}

func (f *avroFormat) encode(v any) (payload []byte, message []int, err error) {
	if payload, err = avroAPI.Marshal(f.writer, v); err != nil {
		return nil, nil, fmt.Errorf("encode Avro: %w", err)
	}
	return payload, nil, nil
}

func (f *avroFormat) name([]int) string {
	if named, ok := f.writer.(avro.NamedSchema); ok {
		return named.FullName()
	}
	return ""
}
