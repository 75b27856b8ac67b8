package schemaregistry_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

type nested struct {
	Order  *line          `json:"order"`
	Lines  []line         `json:"lines"`
	Extra  map[string]any `json:"extra"`
	Plain  uint8
	Amount float64 `json:"amount"`
	Hidden string  `json:"-"`
}

type line struct {
	ID     string `avro:"id" json:"identifier"`
	Number int64  `json:"number,omitempty"`
}

// jsonMessage is a message of a JSON Schema that takes any value.
func jsonMessage(t *testing.T, registry *schemaregistry.Registry, v any) *idem.Message {
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "any", Schema: `{}`, Type: "JSON", Register: true})
	require.NoError(t, err)
	value, err := e.Encode(t.Context(), v)
	require.NoError(t, err)
	return &idem.Message{Topic: "t", Value: value, Time: time.Now()}
}

func TestField(t *testing.T) {
	registry := open(t, fake(t).URL())
	m := jsonMessage(t, registry, json.RawMessage(`{"order":{"ID":"o1","identifier":"j1","number":0},"lines":[{}],"amount":1.5,
		"Plain":7,"extra":{"text":"x","deep":{"er":"y"},"number":5,"none":null,"empty":""}}`))
	for path, want := range map[string]string{
		"order.number": "0", "Plain": "7", "extra.text": "x", "extra.deep.er": "y",
	} {
		got, err := schemaregistry.Field[nested](registry, path).Extract(m)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	got, err := schemaregistry.Field[map[string]any](registry, "extra.text").Extract(m)
	require.NoError(t, err)
	require.Equal(t, "x", got)
	for _, path := range []string{"extra.missing", "extra.none", "extra.empty", "extra.text.deeper", "extra.number"} { // a float64
		_, err := schemaregistry.Field[nested](registry, path).Extract(m)
		require.ErrorIs(t, err, idem.ErrNotFound, path)
	}
	for _, text := range []string{`\ud800`, "\xff", "\ufffd"} {
		bad := jsonMessage(t, registry, json.RawMessage(`{"extra":{"text":"secret`+text+`"}}`))
		_, err := schemaregistry.Field[nested](registry, "extra.text").Extract(bad)
		require.ErrorIs(t, err, idem.ErrInvalid)
		require.NotContains(t, err.Error(), "secret")
	}
	none := jsonMessage(t, registry, map[string]any{"order": nil})
	_, err = schemaregistry.Field[nested](registry, "order.id").Extract(none)
	require.ErrorIs(t, err, idem.ErrNotFound)
	for _, path := range []string{"", "order", "order.ID", "order.-", "lines", "lines.id", "amount", "Hidden", "unknown", "order.id.x"} {
		require.Empty(t, schemaregistry.Field[nested](registry, path).String(), path)
	}
}

func TestField_Protobuf(t *testing.T) {
	server := fake(t)
	registry := open(t, server.URL())
	register(t, server.URL(), "s", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto2"; package google.protobuf;
		message FieldDescriptorProto { optional string name = 1; optional int32 number = 3; optional FieldOptions options = 8; } message FieldOptions {}`})
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
	require.NoError(t, err)
	value, err := e.Encode(t.Context(), &descriptorpb.FieldDescriptorProto{Name: proto.String("n1"), Number: proto.Int32(4)})
	require.NoError(t, err)
	var got []string
	r := idem.NewRouter(idem.DecodeWith(registry), idem.Type(idem.Fixed("paid")),
		idem.ID(idem.Joined(schemaregistry.Field[*descriptorpb.FieldDescriptorProto](registry, "name"),
			schemaregistry.Field[*descriptorpb.FieldDescriptorProto](registry, "number"))))
	idem.On(r, "paid", func(_ context.Context, e idem.Event[*descriptorpb.FieldDescriptorProto]) error {
		got = append(got, e.ID+" "+e.Data.GetName())
		return nil
	})
	p := consume(t, r)
	require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "t", Value: value, Time: time.Now()}))
	require.Equal(t, []string{"n1:4 n1"}, got, p.logged())
	_, err = schemaregistry.Field[*descriptorpb.FieldDescriptorProto](registry, "extendee").Extract(&idem.Message{Value: value})
	require.ErrorIs(t, err, idem.ErrNotFound)
	for _, path := range []string{"unknown", "label", "options", "options.ctype", "name.x", "proto3_optional"} {
		require.Empty(t, schemaregistry.Field[*descriptorpb.FieldDescriptorProto](registry, path).String(), path)
	}
	require.NotEmpty(t, schemaregistry.Field[*timestamppb.Timestamp](registry, "seconds").String())
}
