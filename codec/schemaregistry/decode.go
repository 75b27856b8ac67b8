package schemaregistry

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem"
)

var header sr.ConfluentHeader

// maxNesting limits the depth of a Protobuf message in its file.
const maxNesting = 32

// Decode implements [idem.Decoder]. into is a pointer to a Go value for Avro and JSON Schema, a
// Protobuf message for Protobuf, or an [*Info] for any of them.
//
// An error is marked with [idem.Unavailable] if the registry gives no valid answer, for any reason:
// refused connections, time-outs, refused credentials, errors of the server. Other errors have no
// mark. The value is not in Confluent's format, or the registry does not know the schema ID or a
// schema that it refers to. Or the schema cannot be used, or the value does not fit the schema or
// into. All but the first of these name the schema ID. No error quotes the value.
func (r *Registry) Decode(ctx context.Context, m *idem.Message, into any) error {
	id, rest, err := header.DecodeID(m.Value)
	if err != nil {
		return errors.New("the value does not begin with a zero byte and a schema ID")
	}
	if id < 0 || id > math.MaxInt32 { // int has 32 bits on some machines
		return fmt.Errorf("schema ID %d: no registry gives an ID above %d", id, math.MaxInt32)
	}
	s, err := r.schema(ctx, id)
	if err != nil {
		return err
	}
	var message []int
	if s.kind == sr.TypeProtobuf {
		if message, rest, err = decodeIndex(rest); err != nil {
			return fmt.Errorf("schema ID %d: %w", id, err)
		}
	}
	if info, ok := into.(*Info); ok {
		*info = Info{ID: id, Type: s.kind.String(), Name: s.format.name(message)}
		return nil
	}
	if err := s.format.decode(rest, message, into); err != nil {
		return fmt.Errorf("schema ID %d: %w", id, err)
	}
	return nil
}

func decodeIndex(b []byte) (index []int, rest []byte, err error) {
	index, rest, err = header.DecodeIndex(b, maxNesting)
	if err != nil {
		return nil, nil, errors.New("the message index is invalid")
	}
	return index, rest, nil
}

// SchemaName returns an extractor of the name of the schema, for [idem.Type]. That is the full name
// of the Avro record or of the Protobuf message, or the title of the JSON Schema. The name needs
// the schema, so events wait while the registry is down and the schema is not cached.
func (r *Registry) SchemaName() idem.Extractor {
	return idem.FromData("name of the schema", r, func(i Info) (string, error) {
		if i.Name == "" {
			return "", fmt.Errorf("schema ID %d: name %w", i.ID, idem.ErrNotFound)
		}
		return i.Name, nil
	})
}
