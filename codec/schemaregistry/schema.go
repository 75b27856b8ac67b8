package schemaregistry

import (
	"errors"
	"fmt"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
)

// format reads and writes values of one schema.
type format interface {
	// decode fills into with payload; message is the index of the message, for Protobuf.
	decode(payload []byte, message []int, into any) error
	// encode returns the payload of v and the index of its message.
	encode(v any) (payload []byte, message []int, err error)
	// name returns the name of the record or message. Empty without one.
	name(message []int) string
}

// schema is a schema of the registry, parsed. err is the reason if it cannot be used.
type schema struct {
	id     int
	kind   sr.SchemaType
	format format
	err    error
}

// parse parses a schema. Avro values are read as the readers say, and written as source says: an
// encoder has no readers. The result is kept, so an error is kept too.
func parse(id int, source sr.Schema, refs []reference, readers map[string]avro.Schema) *schema {
	s := &schema{id: id, kind: source.Type}
	switch source.Type {
	case sr.TypeAvro:
		s.format, s.err = parseAvro(source.Schema, refs, readers)
	case sr.TypeProtobuf:
		s.format, s.err = parseProtobuf(source.Schema)
	case sr.TypeJSON:
		s.format, s.err = parseJSON(source, refs)
	default:
		s.err = errors.New("its type is unknown here")
	}
	if s.err != nil {
		s.err = unusable(id, source.Type, s.err)
	}
	return s
}

func unusable(id int, kind sr.SchemaType, err error) error {
	return fmt.Errorf("schema ID %d (%s) cannot be used: %w", id, kind, err)
}

// Info describes the schema of a value. A [Registry] decodes it like any other value, without the
// value itself: idem.FromData[schemaregistry.Info].
type Info struct {
	ID   int    // of the schema
	Type string // "AVRO", "PROTOBUF" or "JSON"
	// Name is the full name of the Avro record, the full name of the Protobuf message, or the title
	// of the JSON Schema. Empty for an Avro schema without a name and a JSON Schema without a
	// title.
	Name string
}
