package schemaregistry

import (
	"errors"
	"fmt"

	"github.com/hamba/avro/v2"
)

// maxAvro limits the bytes of one string and the elements of one array, so that a corrupt length
// does not take the memory.
const maxAvro = 16 << 20

var avroAPI = avro.Config{MaxByteSliceSize: maxAvro, MaxSliceAllocSize: maxAvro}.Freeze()

type avroFormat struct {
	writer  avro.Schema
	decoder avro.Schema // writer, resolved to the reader's schema
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
		if f.decoder, err = avro.NewSchemaCompatibility().Resolve(reader, writer); err != nil {
			return nil, fmt.Errorf("resolve to the schema of Config.AvroReaders: %w", err)
		}
	}
	return f, nil
}

func (f *avroFormat) decode(payload []byte, _ []int, into any) error {
	reader := avro.NewReader(nil, 0, avro.WithReaderConfig(avroAPI)).Reset(payload)
	reader.ReadVal(f.decoder, into)
	if reader.Error != nil {
		return fmt.Errorf("decode Avro: %w", reader.Error)
	}
	if reader.Read(make([]byte, 1)); reader.Error == nil {
		return errors.New("decode Avro: there are bytes behind the value")
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
