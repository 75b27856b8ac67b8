package schemaregistry_test

import (
	"context"
	"testing"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

type payment struct {
	ID     string `avro:"id" json:"id"`
	Amount int64  `avro:"amount" json:"amount"`
}

const (
	avroPayment = `{"type":"record","name":"Payment","namespace":"shop","fields":[
		{"name":"id","type":"string"},{"name":"amount","type":"long"}]}`
	jsonPayment = `{"$schema":"http://json-schema.org/draft-07/schema#","title":"Payment","type":"object",
		"properties":{"id":{"type":"string"},"amount":{"type":"integer","minimum":1}},"required":["id","amount"]}`
	// The first messages of google/protobuf/timestamp.proto and of descriptor.proto, behind one of
	// their own.
	protoTimestamp = `syntax = "proto3"; package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }`
	protoNested    = `syntax = "proto2"; package google.protobuf; message Unused {}
		message DescriptorProto { message ReservedRange { optional int32 start = 1; optional int32 end = 2; }
		message ExtensionRange { optional int32 start = 1; optional int32 end = 2; } }`
)

// forms are the formats, each with a value, and its encoding by other libraries.
var forms = map[string]struct {
	schema sr.Schema
	name   string
	index  []int
	value  any
	other  func(v any) ([]byte, error)
	on     func(r *idem.Router, got *[]any)
}{
	"avro": {
		sr.Schema{Schema: avroPayment}, "shop.Payment", nil, payment{"p1", 7},
		func(v any) ([]byte, error) { return avro.Marshal(avro.MustParse(avroPayment), v) }, on[payment],
	},
	"json": {
		sr.Schema{Schema: jsonPayment, Type: sr.TypeJSON}, "Payment", nil, payment{"p1", 7},
		func(any) ([]byte, error) { return []byte(`{"id":"p1","amount":7}`), nil }, on[payment],
	},
	"protobuf": {
		sr.Schema{Schema: protoTimestamp, Type: sr.TypeProtobuf}, "google.protobuf.Timestamp", []int{0},
		timestamppb.New(time.Unix(7, 8)), marshalProto, on[*timestamppb.Timestamp],
	},
	"nested protobuf": {
		sr.Schema{Schema: protoNested, Type: sr.TypeProtobuf}, "google.protobuf.DescriptorProto.ExtensionRange", []int{1, 1},
		&descriptorpb.DescriptorProto_ExtensionRange{Start: proto.Int32(3), End: proto.Int32(4)}, marshalProto,
		on[*descriptorpb.DescriptorProto_ExtensionRange],
	},
}

func marshalProto(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

func on[T any](r *idem.Router, got *[]any) {
	idem.On(r, "paid", func(_ context.Context, e idem.Event[T]) error {
		*got = append(*got, e.Data)
		return nil
	})
}

func same(t *testing.T, want, got any) {
	if m, ok := want.(proto.Message); ok {
		require.True(t, proto.Equal(m, got.(proto.Message)), "%v, %v", want, got)
		return
	}
	require.Equal(t, want, got)
}

// Values go through the registry in both directions, and are those that another client writes and
// reads.
func TestFormats(t *testing.T) {
	for form, c := range forms {
		t.Run(form, func(t *testing.T) {
			servers(t, func(t *testing.T, address string) {
				at := subject(t)
				id := register(t, address, at, c.schema)
				registry := open(t, address)
				e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: at})
				require.NoError(t, err)
				ours, err := e.Encode(t.Context(), c.value)
				require.NoError(t, err)
				theirs, err := sr.Encode(c.value, new(sr.ConfluentHeader), id, c.index, c.other)
				require.NoError(t, err)
				require.Equal(t, theirs, ours)

				var got []any
				router := idem.NewRouter(idem.DecodeWith(registry))
				c.on(router, &got)
				p := consume(t, router)
				require.NoError(t, p.Handle(t.Context(), record("e1", "paid", 1, theirs)))
				require.Len(t, got, 1, p.logged())
				same(t, c.value, got[0])

				var info schemaregistry.Info
				require.NoError(t, registry.Decode(t.Context(), record("e1", "paid", 1, ours), &info))
				require.Equal(t, schemaregistry.Info{ID: id, Type: c.schema.Type.String(), Name: c.name}, info)
			})
		})
	}
}

// An encoder registers its schema if it may, finds it if it may not, and refuses an unknown one.
func TestEncoder_OwnSchema(t *testing.T) {
	for form, c := range forms {
		t.Run(form, func(t *testing.T) {
			servers(t, func(t *testing.T, address string) {
				registry, at := open(t, address), subject(t)
				cfg := schemaregistry.EncoderConfig{Subject: at, Schema: c.schema.Schema, Type: c.schema.Type.String()}
				e, err := registry.Encoder(cfg)
				require.NoError(t, err)
				_, err = e.Encode(t.Context(), c.value)
				require.ErrorContains(t, err, at)
				require.Empty(t, idem.ErrorMark(err), "to wait would not help: %v", err)

				cfg.Register = true
				e, err = registry.Encoder(cfg)
				require.NoError(t, err)
				first, err := e.Encode(t.Context(), c.value)
				require.NoError(t, err)
				cfg.Register = false
				e, err = open(t, address).Encoder(cfg)
				require.NoError(t, err)
				again, err := e.Encode(t.Context(), c.value)
				require.NoError(t, err)
				require.Equal(t, first, again)
			})
		})
	}
}

// The type and the ID of an event may come from the schema and the decoded value: one look-up, one
// call for each kind of value.
func TestSchemaName(t *testing.T) {
	servers(t, func(t *testing.T, address string) {
		registry := open(t, address)
		at := subject(t)
		e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: at, Schema: avroPayment, Register: true})
		require.NoError(t, err)
		value, err := e.Encode(t.Context(), payment{"p1", 7})
		require.NoError(t, err)
		var got []string
		r := idem.NewRouter(idem.DecodeWith(registry), idem.Type(registry.SchemaName()),
			idem.ID(idem.FromData("id", registry, func(p payment) (string, error) { return p.ID, nil })))
		idem.On(r, "shop.Payment", func(_ context.Context, e idem.Event[payment]) error {
			got = append(got, e.ID)
			return nil
		})
		p := consume(t, r)
		for offset := range int64(3) {
			m := &idem.Message{Topic: "payments", Offset: offset, Value: value, Time: time.Now()}
			require.NoError(t, p.Handle(t.Context(), m))
		}
		require.Equal(t, []string{"p1"}, got)
	})
}

// A value of an older or newer writer is resolved to the reader's schema: defaults, promotions,
// aliases.
func TestAvro_Evolution(t *testing.T) {
	type reader struct {
		ID       string  `avro:"payment_id"`
		Amount   float64 `avro:"amount"`
		Currency string  `avro:"currency"`
	}
	schema := `{"type":"record","name":"Payment","namespace":"shop","fields":[
		{"name":"payment_id","type":"string","aliases":["id"]},{"name":"amount","type":"double"},
		{"name":"currency","type":"string","default":"EUR"}]}`
	servers(t, func(t *testing.T, address string) {
		registry := open(t, address, func(c *schemaregistry.Config) { c.AvroReaders = []string{schema} })
		var got []reader
		r := idem.NewRouter(idem.DecodeWith(registry))
		idem.On(r, "paid", func(_ context.Context, e idem.Event[reader]) error { got = append(got, e.Data); return nil })
		p := consume(t, r)
		for i, c := range []struct {
			writer string
			value  any
		}{
			{avroPayment, payment{"p1", 7}},
			{schema, reader{"p2", 7.5, "USD"}},
			{`{"type":"record","name":"Payment","namespace":"shop","fields":[{"name":"extra","type":{"type":"array","items":"string"}},
				{"name":"payment_id","type":"string"},{"name":"amount","type":"int"}]}`, map[string]any{"extra": []string{"a"}, "payment_id": "p3", "amount": 7}},
		} {
			e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: subject(t), Schema: c.writer, Register: true})
			require.NoError(t, err)
			value, err := e.Encode(t.Context(), c.value)
			require.NoError(t, err)
			require.NoError(t, p.Handle(t.Context(), record("e"+string(rune('1'+i)), "paid", int64(i), value)))
		}
		require.Equal(t, []reader{{"p1", 7, "EUR"}, {"p2", 7.5, "USD"}, {"p3", 7, "EUR"}}, got, p.logged())

		id := register(t, address, subject(t), sr.Schema{Schema: `{"type":"record","name":"Payment","namespace":"shop","fields":[
			{"name":"id","type":"string"}]}`})
		value, err := sr.Encode("p4", new(sr.ConfluentHeader), id, nil, func(any) ([]byte, error) { return []byte("\x04p4"), nil })
		require.NoError(t, err)
		require.NoError(t, p.Handle(t.Context(), record("e9", "paid", 9, value)))
		class, text := p.deadLetter(t)
		require.Equal(t, string(idem.ClassUndecodable), class)
		require.Contains(t, text, "schema ID")
		require.Contains(t, text, "amount")
	})
}

// Schemas refer to others by name, in every format.
func TestReferences(t *testing.T) {
	money := map[string]sr.Schema{
		"avro": {Schema: `{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"}]}`},
		"json": {Schema: `{"title":"Money","type":"object","properties":{"cents":{"type":"integer"}},"required":["cents"]}`, Type: sr.TypeJSON},
	}
	order := map[string]sr.Schema{
		"avro": {Schema: `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"price","type":"shop.Money"}]}`},
		"json": {Schema: `{"title":"Order","type":"object","properties":{"price":{"$ref":"money.json"}}}`, Type: sr.TypeJSON},
	}
	type amount struct {
		Cents int64 `avro:"cents" json:"cents"`
	}
	type ordered struct {
		Price amount `avro:"price" json:"price"`
	}
	for form, name := range map[string]string{"avro": "shop.Money", "json": "money.json"} {
		t.Run(form, func(t *testing.T) {
			servers(t, func(t *testing.T, address string) {
				inner, outer := subject(t)+"-inner", subject(t)+"-outer"
				register(t, address, inner, money[form])
				s := order[form]
				s.References = []sr.SchemaReference{{Name: name, Subject: inner, Version: 1}}
				register(t, address, outer, s)
				e, err := open(t, address).Encoder(schemaregistry.EncoderConfig{Subject: outer})
				require.NoError(t, err)
				value, err := e.Encode(t.Context(), ordered{amount{5}})
				require.NoError(t, err)
				var got ordered
				require.NoError(t, open(t, address).Decode(t.Context(), record("e1", "paid", 1, value), &got))
				require.Equal(t, ordered{amount{5}}, got)
			})
		})
	}
}
