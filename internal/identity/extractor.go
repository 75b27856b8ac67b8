// Package identity finds event IDs, event types and tenants in messages, and makes fingerprints of
// their contents.
package identity

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/idem-go/idem/idemtype"
)

// Extractor finds an identity in a message. The zero value is invalid.
type Extractor struct {
	// Find returns the identity, or an error as documented at idem.Extractor.
	Find func(context.Context, *idemtype.Message) (string, error)
	// bytes is Find without the copy: the result may be a part of the message. nil for some.
	bytes finder
	// Descriptor names the place of the identity. Stores keep it, so the text never changes.
	Descriptor string
	Form       Form
	Decodes    bool // Find calls a decoder
}

func plainOf(descriptor string, find func(*idemtype.Message) (string, error)) Extractor {
	return Extractor{Find: withoutContext(find), Descriptor: descriptor}
}

func withoutContext(
	find func(*idemtype.Message) (string, error),
) func(context.Context, *idemtype.Message) (string, error) {
	return func(_ context.Context, m *idemtype.Message) (string, error) { return find(m) }
}

// finder returns an identity, which may be a part of the message.
type finder func(*idemtype.Message) ([]byte, error)

// ofBytes returns a plain extractor that copies the result of find.
func ofBytes(descriptor string, find finder) Extractor {
	e := plainOf(descriptor, func(m *idemtype.Message) (string, error) {
		b, err := find(m)
		return string(b), err
	})
	e.bytes = find
	return e
}

// Lookup returns the value of the map for the identity of m, without a copy of the identity where
// possible. The identity is returned if the map lacks it.
func Lookup[V any](
	ctx context.Context, e *Extractor, m *idemtype.Message, in map[string]*V,
) (found *V, id string, err error) {
	if e.bytes == nil {
		if id, err = e.Find(ctx, m); err != nil {
			return nil, "", err
		}
		return in[id], id, nil
	}
	b, err := e.bytes(m)
	if err != nil {
		return nil, "", err
	}
	if v := in[string(b)]; v != nil {
		return v, "", nil
	}
	return nil, string(b), nil
}

// FromFunc returns an extractor that calls find.
func FromFunc(descriptor string, find func(*idemtype.Message) (string, error)) Extractor {
	return plainOf("described("+strconv.Quote(descriptor)+")", find)
}

// FromDecoder returns an extractor that calls find, which calls a decoder.
func FromDecoder(
	descriptor string, find func(context.Context, *idemtype.Message) (string, error),
) Extractor {
	return Extractor{
		Find: find, Descriptor: "decoded(" + strconv.Quote(descriptor) + ")", Decodes: true,
	}
}

// FromHeader returns an extractor of a header that must appear once.
func FromHeader(name string) Extractor {
	// Made once, because a look at a missing header must not allocate.
	missing := fmt.Errorf("header %s %w", name, idemtype.ErrNotFound)
	return ofBytes("header("+strconv.Quote(name)+")", func(m *idemtype.Message) ([]byte, error) {
		v, n := header(m, name)
		switch {
		case n == 0 || n == 1 && len(v) == 0:
			return nil, missing
		case n > 1:
			return nil, fmt.Errorf("%w: header %s appears %d times", idemtype.ErrAmbiguous, name, n)
		}
		return v, nil
	})
}

// header returns the first header with that name, and the number of such headers.
func header(m *idemtype.Message, name string) (value []byte, n int) {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			if n == 0 {
				value = m.Headers[i].Value
			}
			n++
		}
	}
	return value, n
}

// FromKey returns an extractor of the Kafka key.
func FromKey() Extractor {
	return plainOf("key", func(m *idemtype.Message) (string, error) {
		if len(m.Key) == 0 {
			return "", fmt.Errorf("kafka key %w", idemtype.ErrNotFound)
		}
		return string(m.Key), nil
	})
}

// FromValue returns an extractor of the whole value.
func FromValue() Extractor {
	return plainOf("value", func(m *idemtype.Message) (string, error) {
		if len(m.Value) == 0 {
			return "", fmt.Errorf("value %w", idemtype.ErrNotFound)
		}
		return string(m.Value), nil
	})
}

// FromJSON returns an extractor of a field of the value.
func FromJSON(name string) Extractor {
	path := strings.Split(name, ".")
	return ofBytes("json("+strconv.Quote(name)+")", func(m *idemtype.Message) ([]byte, error) {
		raw, err := field(m.Value, path)
		if err != nil {
			return nil, fmt.Errorf("JSON field %s: %w", name, err)
		}
		return fieldText(name, raw)
	})
}

// Fixed returns an extractor of a constant.
func Fixed(s string) Extractor {
	return plainOf("fixed("+strconv.Quote(s)+")",
		func(*idemtype.Message) (string, error) { return s, nil })
}
