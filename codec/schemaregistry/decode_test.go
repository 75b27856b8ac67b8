package schemaregistry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

// decodeLimit is the time after which a call of Decode counts as endless.
const decodeLimit = 30 * time.Second

// A value that does not fit is undecodable: the error names the schema ID, and does not quote the
// value.
func TestDecode_Undecodable(t *testing.T) {
	const secret = "4111111111111111"
	servers(t, func(t *testing.T, address string) {
		registry, h := open(t, address), new(sr.ConfluentHeader)
		id := map[string]int{}
		for form, c := range forms {
			id[form] = register(t, address, subject(t)+"-"+strings.ReplaceAll(form, " ", ""), c.schema)
		}
		id["avro tags"] = register(t, address, subject(t)+"-tags", sr.Schema{Schema: `{"type":"record","name":"Tagged","fields":[
			{"name":"id","type":"string"},{"name":"tags","type":{"type":"array","items":"string"}}]}`})
		with := func(form string, index []int, payload string) []byte {
			v, err := h.AppendEncode(nil, id[form], index)
			require.NoError(t, err)
			return append(v, payload...)
		}
		for name, c := range map[string]struct {
			value []byte
			into  any
			text  string
		}{
			"empty":                 {[]byte{}, new(payment), "does not begin with"},
			"JSON without header":   {[]byte(`{"id":"` + secret + `"}`), new(payment), "does not begin with"},
			"short":                 {[]byte{0, 0, 0, 1}, new(payment), "does not begin with"},
			"avro cut":              {with("avro", nil, "\x20"+secret[:3]), new(payment), "schema ID"},
			"avro too long":         {with("avro", nil, "\x04p1\x0e"+secret), new(payment), "bytes behind"},
			"avro endless length":   {with("avro", nil, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), new(payment), "schema ID"},
			"avro skipped count":    {with("avro tags", nil, "\x04e1\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), new(struct{ ID string }), "schema ID"},
			"avro other type":       {with("avro", nil, "\x04p1\x0e"), new(int), "schema ID"},
			"json invalid":          {with("json", nil, `{"id":`+secret), new(payment), "not valid JSON"},
			"json does not fit":     {with("json", nil, `{"id":"`+secret+`","amount":0}`), new(payment), "#/properties/amount/minimum"},
			"json lacks a field":    {with("json", nil, `{"id":"`+secret+`"}`), new(payment), "#/required"},
			"json other type":       {with("json", nil, `{"id":"`+secret+`","amount":5}`), new(struct{ ID int }), "JSON"},
			"protobuf index":        {with("protobuf", []int{3}, ""), new(timestamppb.Timestamp), `message [3] of the schema is ""`},
			"protobuf long index":   {append(with("protobuf", nil, ""), 0x80, 0x80, 0x80, 0x08), new(timestamppb.Timestamp), "message index"},
			"protobuf other type":   {with("nested protobuf", []int{1, 1}, ""), new(timestamppb.Timestamp), "not google.protobuf.Timestamp"},
			"protobuf cut":          {with("protobuf", []int{0}, "\x08"), new(timestamppb.Timestamp), "Protobuf"},
			"protobuf into a value": {with("protobuf", []int{0}, ""), new(payment), "is no Protobuf message"},
		} {
			t.Run(name, func(t *testing.T) {
				decoded := make(chan error, 1)
				go func() { decoded <- registry.Decode(t.Context(), record("e1", "paid", 1, c.value), c.into) }()
				var err error
				select {
				case err = <-decoded:
				case <-time.After(decodeLimit):
					t.Fatal("Decode does not return")
				}
				require.ErrorContains(t, err, c.text)
				require.Empty(t, idem.ErrorMark(err))
				require.NotContains(t, err.Error(), secret[:3])
			})
		}
	})
}

// A schema that cannot be used makes its values undecodable, without another question.
func TestDecode_UnusableSchema(t *testing.T) {
	server := fake(t)
	for i, s := range []sr.Schema{
		{Schema: `{"type":"record"}`}, {Schema: `message {`, Type: sr.TypeProtobuf}, {Schema: `syntax = "proto3";`, Type: sr.TypeProtobuf},
		{Schema: `{"$ref":"file:///etc/passwd"}`, Type: sr.TypeJSON}, {Schema: `{"$ref":"http://127.0.0.1/x"}`, Type: sr.TypeJSON},
		{Schema: `{"type":5}`, Type: sr.TypeJSON},
	} {
		server.SeedSchema("s"+string(rune('a'+i)), 1, 50+i, s)
		c := count(t, server.URL())
		registry := open(t, c.URL)
		value, err := new(sr.ConfluentHeader).AppendEncode(nil, 50+i, []int{0})
		require.NoError(t, err)
		for range 3 {
			err := registry.Decode(t.Context(), record("e1", "paid", 1, value), new(payment))
			require.ErrorContains(t, err, "cannot be used", s.Schema)
			require.Empty(t, idem.ErrorMark(err))
		}
		require.EqualValues(t, 1, c.requests.Load())
	}
}

func TestNew_Mistakes(t *testing.T) {
	for text, cfg := range map[string]schemaregistry.Config{
		"URLs is empty":            {},
		"must begin with http":     {URLs: []string{"registry:8081"}},
		"invalid address":          {URLs: []string{"http://user:secret%@%zz"}},
		"must not be negative":     {URLs: []string{"http://r"}, Timeout: -1},
		"not both":                 {URLs: []string{"http://r"}, Username: "u", BearerToken: "t"},
		"AvroReaders[0]":           {URLs: []string{"http://r"}, AvroReaders: []string{"{"}},
		"AvroReaders[0] has no":    {URLs: []string{"http://r"}, AvroReaders: []string{`"string"`}},
		"AvroReaders[1]: shop.Pay": {URLs: []string{"http://r"}, AvroReaders: []string{avroPayment, avroPayment}},
	} {
		_, err := schemaregistry.New(cfg)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
	r := open(t, "http://user:secret@registry:8081")
	require.Equal(t, "schema registry registry:8081", r.String())
	for text, cfg := range map[string]schemaregistry.EncoderConfig{
		"Subject is empty": {}, "need a Schema": {Subject: "s", Register: true},
		"not AVRO": {Subject: "s", Schema: "x", Type: "XML"},
	} {
		_, err := r.Encoder(cfg)
		require.ErrorContains(t, err, text)
	}
}

// No value makes a format panic or take much memory.
func FuzzDecode(f *testing.F) {
	server := fake(f)
	ids := []int{}
	for form, c := range forms {
		id, _, err := server.RegisterSchema(strings.ReplaceAll(form, " ", ""), c.schema)
		require.NoError(f, err)
		ids = append(ids, id)
	}
	registry, err := schemaregistry.New(schemaregistry.Config{URLs: []string{server.URL()}})
	require.NoError(f, err)
	f.Add(0, []byte("\x04p1\x0e"))
	f.Add(1, []byte(`{"id":"p1","amount":7}`))
	f.Add(2, []byte("\x00\x08\x07"))
	f.Add(3, []byte("\x04\x02\x02\x08\x07"))
	f.Fuzz(func(t *testing.T, which int, payload []byte) {
		value, err := new(sr.ConfluentHeader).AppendEncode(nil, ids[uint(which)%uint(len(ids))], nil)
		require.NoError(t, err)
		for _, into := range []any{new(payment), new(any), new(timestamppb.Timestamp), new(schemaregistry.Info)} {
			_ = registry.Decode(t.Context(), record("e1", "paid", 1, append(value, payload...)), into)
		}
	})
}
