package idem

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/engine"
	"github.com/idem-go/idem/internal/identity"
)

// DecodeWith sets the decoder of the values of messages. Use it for a format with schemas in
// another service, such as a schema registry. Package codec/schemaregistry, a module of its own,
// has such decoders. [Decoder] documents the calls and the errors. A handler of Protobuf messages
// takes a pointer: On[*pb.Payment].
//
// An event with an identity from headers, the key or JSON is claimed first and decoded then. So a
// duplicate never needs the service, unless shadow mode runs the duplicate. No claim and no
// transaction is held while the service is asked.
//
// A nil d is a mistake of wiring. The last of DecodeWith, [Decode] and [PureDecode] counts.
func DecodeWith(d Decoder) Option {
	return func(s *options) { s.decode, s.decoder, s.decodedBy = nil, d, "DecodeWith" }
}

// FromData returns an extractor of a part of the decoded value, for [ID], [Type], [Tenant] and
// [FingerprintOf]. The function find gets the value that d has decoded, must not change that value,
// and must be safe for concurrent use. The errors of find mean the same as those of [FromFunc], and
// the descriptor too.
//
// The errors of d mean the same as with [DecodeWith]: while a schema registry is down, the event
// waits, because its identity is not known. So a duplicate needs the registry too, and the identity
// better comes from headers if the producer can write them.
//
// If d is comparable, such as a pointer, a value is decoded once for each delivery and each T, also
// if several extractors and the handler use it. [Processor.OrderKey] of a record without a Kafka
// key decodes once more. A nil value has no identity. The zero [Extractor] is returned if an
// argument is nil or empty.
func FromData[T any](descriptor string, d Decoder, find func(T) (string, error)) Extractor {
	if descriptor == "" || isNil(d) || d == nil || find == nil {
		return Extractor{}
	}
	into := reflect.TypeFor[T]().String()
	return Extractor{identity.FromDecoder(descriptor,
		func(ctx context.Context, m *Message) (string, error) {
			if m.Value == nil {
				return "", fmt.Errorf("%w: the value is nil", ErrNotFound)
			}
			data, err := decoded.Value[T](ctx, d, m)
			if err != nil {
				return "", decodeError(into, err)
			}
			return find(*data)
		})}
}

// FingerprintOf compares the copies of an event by the parts that the extractors find, instead of a
// checksum of the whole value. Use it with [FromData] for values that are no JSON, and see
// [Fingerprint] for the choice of parts. A missing part differs from every found one.
//
// The store keeps an HMAC-SHA-256 (RFC 2104) of the parts under secret. The secret must have at
// least 16 bytes and be the same in all processes. [SecondSecret] helps to change it.
func FingerprintOf(secret []byte, parts ...Extractor) Option {
	found := make([]identity.Extractor, len(parts))
	var problem error
	decodes := false
	for i, p := range parts {
		found[i] = p.x
		decodes = decodes || p.x.Decodes
		if p.x.Find == nil {
			problem = errors.New("FingerprintOf: " + engine.InvalidExtractor)
		}
	}
	f, err := identity.FingerprinterOf(secret, found)
	return func(s *options) {
		if err := errors.Join(problem, err); err != nil {
			s.Problems = append(s.Problems, err)
		}
		s.Fingerprint, s.fingerprintDecodes = f, decodes
	}
}

// decodes reports whether a function that reads the events of the handler calls a Decoder.
func (s *options) decodes() bool {
	return s.decoder != nil || s.ID.Decodes || s.Tenant.Decodes ||
		s.Source != nil && s.Source.Decodes || s.fingerprintDecodes
}

func decodeWith[T any](d Decoder) func(context.Context, *Message) (any, error) {
	into := reflect.TypeFor[T]().String()
	return func(ctx context.Context, m *Message) (any, error) {
		if m.Value == nil {
			return new(T), nil
		}
		data, err := decoded.Value[T](ctx, d, m)
		if err != nil {
			return nil, decodeError(into, err)
		}
		return data, nil
	}
}

func decodeError(into string, err error) error {
	if errors.Is(err, decoded.ErrLookUp) {
		return err
	}
	return &DecodeError{Into: into, Err: err, own: true}
}

// checkData refuses a Protobuf message by value: an event is copied, and a message has a lock.
func checkData(t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	if _, ok := reflect.PointerTo(t).MethodByName("ProtoReflect"); ok {
		return fmt.Errorf("%s is a Protobuf message, which must not be copied: use *%s", t, t)
	}
	return nil
}

// isNil reports whether d is a nil pointer or a nil func in an interface.
func isNil(d Decoder) bool {
	if d == nil {
		return false
	}
	v := reflect.ValueOf(d)
	switch v.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return v.IsNil()
	default:
		return false
	}
}
