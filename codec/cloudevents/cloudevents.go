package cloudevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem"
)

// Options returns [ID], [Type] and a [Decoder] without an inner one, as options of a router.
func Options() []idem.Option {
	return []idem.Option{idem.ID(ID()), idem.Type(Type()), idem.DecodeWith(Decoder(nil))}
}

// ID returns the extractor of source and id together, which make an event unique. The result is
// that of [idem.StandardID] for the same event in binary mode. All handlers of one type should use
// the same extractor.
func ID() idem.Extractor {
	standard := idem.StandardID()
	return idem.FromFunc("CloudEvents source and id", func(m *idem.Message) (string, error) {
		e, err := parse(m)
		if err != nil {
			return "", err
		}
		for _, name := range []string{"id", "source"} {
			if e.Attributes[name] == "" {
				return "", fmt.Errorf("CloudEvents attribute %s %w", name, idem.ErrNotFound)
			}
		}
		return standard.Extract(&idem.Message{Headers: []idem.Header{
			{Key: "ce_id", Value: []byte(e.Attributes["id"])},
			{Key: "ce_source", Value: []byte(e.Attributes["source"])},
		}})
	})
}

// Type returns the extractor of the attribute type.
func Type() idem.Extractor { return Attribute("type") }

// Attribute returns the extractor of an attribute, such as subject or an extension.
func Attribute(name string) idem.Extractor {
	return idem.FromFunc("CloudEvents "+name, func(m *idem.Message) (string, error) {
		e, err := parse(m)
		if err != nil {
			return "", err
		}
		v := e.Attributes[name]
		if name == "datacontenttype" {
			v = e.DataContentType
		}
		if v == "" {
			return "", fmt.Errorf("CloudEvents attribute %s %w", name, idem.ErrNotFound)
		}
		return v, nil
	})
}

// Decoder returns a decoder of the data of events. inner decodes the data, as the value of a
// message that has the data's media type as the header content-type. So inner may be a schema
// registry.
//
// Without an inner decoder, data is decoded with encoding/json if the type is JSON or absent, and
// into a Protobuf message if into is one. Data of a google.protobuf.Any must have the type of the
// message. An [*Event] gets the event as it is. An event without data leaves the zero value.
//
// Errors have no mark, except those of inner.
func Decoder(inner idem.Decoder) idem.Decoder { return &decoder{inner} }

type decoder struct{ inner idem.Decoder }

// Decode implements [idem.Decoder].
func (d *decoder) Decode(ctx context.Context, m *idem.Message, into any) error {
	e, err := parse(m)
	if err != nil {
		return err
	}
	if event, ok := into.(*Event); ok {
		*event = *e
		return nil
	}
	if e.Data == nil {
		return nil
	}
	if message, ok := into.(proto.Message); ok && e.typeURL != "" {
		data := &anypb.Any{TypeUrl: e.typeURL, Value: e.Data}
		if err := data.UnmarshalTo(message); err != nil {
			return fmt.Errorf("proto_data of the CloudEvent: %w", err)
		}
		return nil
	}
	if d.inner != nil {
		return d.inner.Decode(ctx, e.message(m), into) //nolint:wrapcheck // in its own words
	}
	return e.decode(into)
}

// Ping implements the optional method of [idem.Decoder].
func (d *decoder) Ping(ctx context.Context) error {
	if p, ok := d.inner.(interface {
		Ping(ctx context.Context) error
	}); ok {
		return p.Ping(ctx) //nolint:wrapcheck // in its own words
	}
	return nil
}

// String implements the optional method of [idem.Decoder].
func (d *decoder) String() string {
	if s, ok := d.inner.(fmt.Stringer); ok {
		return s.String()
	}
	return "decoder of CloudEvents"
}

// message returns the data as the value of a message.
func (e *Event) message(m *idem.Message) *idem.Message {
	data := *m
	data.Value, data.Headers = e.Data, nil
	for _, h := range m.Headers {
		if !strings.EqualFold(h.Key, contentType) {
			data.Headers = append(data.Headers, h)
		}
	}
	if e.DataContentType != "" {
		h := idem.Header{Key: contentType, Value: []byte(e.DataContentType)}
		data.Headers = append(data.Headers, h)
	}
	return &data
}

func (e *Event) decode(into any) error {
	if message, ok := into.(proto.Message); ok {
		if err := proto.Unmarshal(e.Data, message); err != nil {
			return fmt.Errorf("data of the CloudEvent: %w", err)
		}
		return nil
	}
	if e.DataContentType != "" && !isJSON(e.DataContentType) || e.typeURL != "" {
		return errors.New("the data of the CloudEvent is not JSON: give Decoder an inner decoder")
	}
	if err := json.Unmarshal(e.Data, into); err != nil {
		return fmt.Errorf("data of the CloudEvent: %w", err)
	}
	return nil
}
