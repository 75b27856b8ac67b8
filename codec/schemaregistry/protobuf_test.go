package schemaregistry_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idem-go/idem/codec/schemaregistry"
)

// Confluent's serializers for Java and .NET registered map fields as their entry messages.
func TestProtobuf_MapEntry(t *testing.T) {
	server := fake(t)
	server.SeedSchema("s", 1, 7, sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; package google.protobuf;
		message Struct {
			repeated FieldsEntry fields = 1;
			message FieldsEntry { option map_entry = true; string key = 1; Value value = 2; }
		}
		message Value { oneof kind { double number_value = 2; } }`})
	want, err := structpb.NewStruct(map[string]any{"amount": 7})
	require.NoError(t, err)
	registry := open(t, server.URL())
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
	require.NoError(t, err)
	value, err := e.Encode(t.Context(), want)
	require.NoError(t, err)
	got := new(structpb.Struct)
	require.NoError(t, registry.Decode(t.Context(), record("e1", "paid", 1, value), got))
	require.True(t, proto.Equal(want, got))
}

// Writers count the generated message of a map field, or do not.
func TestProtobuf_Numbering(t *testing.T) {
	server := fake(t)
	server.SeedSchema("s", 1, 7, sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto2"; package google.protobuf;
		message DescriptorProto {
			map<string, string> labels = 99;
			message ExtensionRange { optional int32 start = 1; }
			message ReservedRange { optional int32 start = 1; }
		}`})
	registry := open(t, server.URL())
	extension, reserved := new(descriptorpb.DescriptorProto_ExtensionRange), new(descriptorpb.DescriptorProto_ReservedRange)
	for index, c := range []struct {
		name                string
		extension, reserved bool
	}{
		{"google.protobuf.DescriptorProto.ExtensionRange", true, false}, // without the generated message
		{"google.protobuf.DescriptorProto.ExtensionRange", true, true},
		{"google.protobuf.DescriptorProto.ReservedRange", false, true}, // with it
		{"", false, false},
	} {
		value, err := new(sr.ConfluentHeader).AppendEncode(nil, 7, []int{0, index})
		require.NoError(t, err)
		m := record("e1", "paid", 1, append(value, 8, 5))
		var info schemaregistry.Info
		require.NoError(t, registry.Decode(t.Context(), m, &info))
		require.Equal(t, c.name, info.Name, index)
		require.Equal(t, c.extension, registry.Decode(t.Context(), m, extension) == nil, index)
		require.Equal(t, c.reserved, registry.Decode(t.Context(), m, reserved) == nil, index)
	}
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
	require.NoError(t, err)
	value, err := e.Encode(t.Context(), reserved)
	require.NoError(t, err)
	_, rest, err := new(sr.ConfluentHeader).DecodeID(value)
	require.NoError(t, err)
	index, _, err := new(sr.ConfluentHeader).DecodeIndex(rest, 0)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2}, index)
}
