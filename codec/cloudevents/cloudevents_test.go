package cloudevents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	sdk "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/cloudevents"
	"github.com/idem-go/idem/dedup/memstore"
)

type payment struct {
	Amount int `json:"amount"`
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

// sdkEvent is an event of the official SDK.
func sdkEvent(t *testing.T, contentType string, data any) sdk.Event {
	e := sdk.NewEvent()
	e.SetID("e1")
	e.SetSource("https://example.com/shop:1")
	e.SetType("com.example.paid")
	e.SetSubject("order-1")
	e.SetTime(at)
	e.SetExtension("attempt", 3)
	e.SetExtension("test", true)
	require.NoError(t, e.SetData(contentType, data))
	require.NoError(t, e.Validate())
	return e
}

// structured is the event in the JSON format, as the SDK writes it.
func structured(t *testing.T, e sdk.Event) *idem.Message {
	value, err := format.JSON.Marshal(&e)
	require.NoError(t, err)
	return message(value, format.JSON.MediaType()+"; charset=UTF-8")
}

func message(value []byte, contentType string) *idem.Message {
	return &idem.Message{Topic: "shop", Value: value, Time: at, Headers: []idem.Header{{Key: "content-type", Value: []byte(contentType)}}}
}

// binary is the event in binary mode, as the Kafka protocol binding defines it.
func binary(e sdk.Event) *idem.Message {
	m := message(e.Data(), e.DataContentType())
	for name, value := range map[string]string{
		"id": e.ID(), "source": e.Source(), "type": e.Type(), "specversion": e.SpecVersion(), "subject": e.Subject(),
		"time": e.Time().Format(time.RFC3339Nano), "attempt": "3", "test": "true",
	} {
		m.Headers = append(m.Headers, idem.Header{Key: "ce_" + name, Value: []byte(value)})
	}
	return m
}

// official is the message of the specification's cloudevents.proto, under another package name.
func official(t *testing.T) protoreflect.MessageDescriptor {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"ce.proto": `syntax = "proto3"; package test;
			import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
			message CloudEvent {
				string id = 1; string source = 2; string spec_version = 3; string type = 4;
				map<string, CloudEventAttributeValue> attributes = 5;
				oneof data { bytes binary_data = 6; string text_data = 7; google.protobuf.Any proto_data = 8; }
				message CloudEventAttributeValue { oneof attr { bool ce_boolean = 1; int32 ce_integer = 2; string ce_string = 3;
					bytes ce_bytes = 4; string ce_uri = 5; string ce_uri_ref = 6; google.protobuf.Timestamp ce_timestamp = 7; } }
			}`}),
	})}
	files, err := c.Compile(t.Context(), "ce.proto")
	require.NoError(t, err)
	return files[0].Messages().ByName("CloudEvent")
}

// protobuf is the event in the Protobuf format, with data as a member in JSON.
func protobuf(t *testing.T, data string) *idem.Message {
	m := dynamicpb.NewMessage(official(t))
	require.NoError(t, protojson.Unmarshal(fmt.Appendf(nil, `{"id":"e1","source":"https://example.com/shop:1","specVersion":"1.0",
		"type":"com.example.paid","attributes":{"subject":{"ceString":"order-1"},"time":{"ceTimestamp":%q},"attempt":{"ceInteger":3},
		"test":{"ceBoolean":true},"datacontenttype":{"ceString":"application/json"}},%s}`, at.Format(time.RFC3339Nano), data), m))
	value, err := proto.Marshal(m)
	require.NoError(t, err)
	return message(value, "application/cloudevents+protobuf")
}

// All modes and formats of one event have the same identity, attributes and data.
func TestModes(t *testing.T) {
	e := sdkEvent(t, "application/json", payment{7})
	modes := map[string]*idem.Message{
		"binary": binary(e), "structured JSON": structured(t, e), "structured Protobuf": protobuf(t, `"binaryData":"eyJhbW91bnQiOjd9"`),
		"Protobuf with text": protobuf(t, `"textData":"{\"amount\":7}"`),
		"JSON with base64": message([]byte(`{"specversion":"1.0","id":"e1","source":"https://example.com/shop:1","type":"com.example.paid",
			"subject":"order-1","time":"2026-01-02T03:04:05.0000006Z","attempt":3,"test":true,"dataschema":null,
			"datacontenttype":"application/json","data_base64":"eyJhbW91bnQiOjd9"}`), "Application/CloudEvents+JSON"),
	}
	want, err := idem.StandardID().Extract(&idem.Message{Headers: binary(e).Headers})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(want, "joined:"))
	for mode, m := range modes {
		t.Run(mode, func(t *testing.T) {
			id, err := cloudevents.ID().Extract(m)
			require.NoError(t, err)
			require.Equal(t, want, id)
			for name, value := range map[string]string{
				"type": "com.example.paid", "subject": "order-1", "attempt": "3", "test": "true", "time": "2026-01-02T03:04:05.0000006Z",
				"datacontenttype": "application/json",
			} {
				v, err := cloudevents.Attribute(name).Extract(m)
				require.NoError(t, err)
				require.Equal(t, value, v, name)
			}
			var p payment
			require.NoError(t, cloudevents.Decoder(nil).Decode(t.Context(), m, &p))
			require.Equal(t, payment{7}, p)
			var event cloudevents.Event
			require.NoError(t, cloudevents.Decoder(nil).Decode(t.Context(), m, &event))
			require.JSONEq(t, `{"amount":7}`, string(event.Data))
		})
	}
	t.Run("one event", func(t *testing.T) { // a copy in another mode is a duplicate
		runs := 0
		r := idem.NewRouter(append(cloudevents.Options(), idem.NoContentCheck())...)
		idem.On(r, "com.example.paid", func(_ context.Context, e idem.Event[payment]) error {
			runs++
			require.Equal(t, 7, e.Data.Amount)
			return nil
		})
		p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: "g"})
		require.NoError(t, err)
		for _, m := range modes {
			require.NoError(t, p.Handle(t.Context(), m))
		}
		require.Equal(t, 1, runs)
		require.NoError(t, p.Close())
	})
}

// Data that is no JSON: text, bytes, and a Protobuf message.
func TestData(t *testing.T) {
	for name, c := range map[string]struct {
		m    *idem.Message
		want string
	}{
		"text":          {structured(t, sdkEvent(t, "text/plain", "a \"text\"")), `a "text"`},
		"bytes":         {structured(t, sdkEvent(t, "application/octet-stream", []byte{0, 0xff})), "\x00\xff"},
		"JSON string":   {structured(t, sdkEvent(t, "application/json", "text")), `"text"`},
		"other JSON":    {structured(t, sdkEvent(t, "application/vnd.pay+json; v=1", []byte(`{"amount":7}`))), `{"amount":7}`},
		"Protobuf text": {protobuf(t, `"textData":"text"`), "text"},
	} {
		t.Run(name, func(t *testing.T) {
			var e cloudevents.Event
			require.NoError(t, cloudevents.Decoder(nil).Decode(t.Context(), c.m, &e))
			require.Equal(t, c.want, string(e.Data))
			var inner string
			d := cloudevents.Decoder(decodeFunc(func(m *idem.Message, into any) error {
				*into.(*string) = string(m.Value)
				n := 0
				for _, h := range m.Headers {
					if h.Key == "content-type" {
						n++
						require.Equal(t, e.DataContentType, string(h.Value))
					}
				}
				require.Equal(t, 1, n)
				return nil
			}))
			require.NoError(t, d.Decode(t.Context(), c.m, &inner))
			require.Equal(t, c.want, inner)
		})
	}
	stamp := timestamppb.New(at)
	packed, err := anypb.New(stamp)
	require.NoError(t, err)
	asJSON, err := protojson.Marshal(packed)
	require.NoError(t, err)
	m := protobuf(t, `"protoData":`+string(asJSON))
	got := &timestamppb.Timestamp{}
	require.NoError(t, cloudevents.Decoder(nil).Decode(t.Context(), m, got))
	require.True(t, proto.Equal(stamp, got))
	require.ErrorContains(t, cloudevents.Decoder(nil).Decode(t.Context(), m, &anypb.Any{}), "proto_data")

	none := structured(t, sdkEvent(t, "application/json", nil))
	require.NoError(t, json.Unmarshal(none.Value, new(any)))
	none.Value = []byte(strings.Replace(string(none.Value), `,"data":null`, "", 1))
	p := payment{}
	require.NoError(t, cloudevents.Decoder(nil).Decode(t.Context(), none, &p))
	require.Zero(t, p)
}

type decodeFunc func(*idem.Message, any) error

func (f decodeFunc) Decode(_ context.Context, m *idem.Message, into any) error { return f(m, into) }

func TestMistakes(t *testing.T) {
	const start = `{"specversion":"1.0","id":"secret","source":"s","type":"t"`
	for name, c := range map[string]struct {
		m    *idem.Message
		text string
	}{
		"no CloudEvent":     {message([]byte(`{}`), "application/json"), "no header begins with ce_"},
		"no header":         {&idem.Message{Value: []byte(`{}`)}, "no header begins with ce_"},
		"two content types": {&idem.Message{Headers: append(message(nil, "a/b").Headers, message(nil, "a/b").Headers...)}, "appears 2 times"},
		"batch":             {message([]byte(`[]`), "application/cloudevents-batch+json"), "batch"},
		"format":            {message([]byte(`<a/>`), "application/cloudevents+xml"), "neither JSON nor Protobuf"},
		"version":           {message([]byte(strings.Replace(start, "1.0", "0.3", 1)+`}`), "application/cloudevents+json"), "specversion"},
		"array":             {message([]byte(`[1]`), "application/cloudevents+json"), "not a JSON object"},
		"cut":               {message([]byte(start), "application/cloudevents+json"), "not a JSON object"},
		"rest":              {message([]byte(start+`} {}`), "application/cloudevents+json"), "not a JSON object"},
		"object attribute":  {message([]byte(start+`,"subject":{}}`), "application/cloudevents+json"), "not a JSON object"},
		"id twice":          {message([]byte(start+`,"id":"secret2"}`), "application/cloudevents+json"), "more than once"},
		"data twice":        {message([]byte(start+`,"data":1,"data_base64":"aGk="}`), "application/cloudevents+json"), "more than once"},
		"base64":            {message([]byte(start+`,"data_base64":"secret!"}`), "application/cloudevents+json"), "base64"},
		"protobuf":          {message([]byte("\x0a\xff"), "application/cloudevents+protobuf"), "Protobuf format"},
		"protobuf id twice": {message([]byte("\x0a\x01a\x0a\x01b"), "application/cloudevents+protobuf"), "more than once"},
		"empty":             {message(nil, "application/cloudevents+json"), "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range []idem.Extractor{cloudevents.ID(), cloudevents.Type()} {
				_, err := e.Extract(c.m)
				require.ErrorContains(t, err, c.text)
				require.NotContains(t, err.Error(), "secret")
				require.Empty(t, idem.ErrorMark(err))
			}
			require.ErrorContains(t, cloudevents.Decoder(nil).Decode(t.Context(), c.m, new(payment)), c.text)
		})
	}
	_, err := cloudevents.ID().Extract(message([]byte(`{"specversion":"1.0","id":"a","type":"t"}`), "application/cloudevents+json"))
	require.ErrorIs(t, err, idem.ErrNotFound)
	text := structured(t, sdkEvent(t, "text/plain", "text"))
	require.ErrorContains(t, cloudevents.Decoder(nil).Decode(t.Context(), text, new(payment)), "not JSON")
}

// Invalid UTF-8 and half surrogates would become U+FFFD, and two IDs would become one. The character
// itself is valid.
func TestAttributes_Unicode_P22(t *testing.T) {
	with := func(id string) *idem.Message {
		return message([]byte(`{"specversion":"1.0","id":"`+id+`","source":"s","type":"t","data":"\ud800"}`), "application/cloudevents+json")
	}
	for _, id := range []string{
		"a\xff", "\xc3\ufffd", `\ud800`, `\uDFFF`, `\udc00\ud800`, `\ud83d\ud83d\ude00`, `\ud800x\ufffd`, `\\\ud800`, `\ud800\\ufffd`,
	} {
		for _, e := range []idem.Extractor{cloudevents.ID(), cloudevents.Attribute("id"), cloudevents.Type()} {
			_, err := e.Extract(with(id))
			require.ErrorIs(t, err, idem.ErrInvalid, "%q", id)
			require.ErrorContains(t, err, "not valid Unicode", "%q", id)
		}
	}
	for id, want := range map[string]string{
		"\ufffd": "\ufffd", `\ufffd`: "\ufffd", `\uFFfd`: "\ufffd", `\ud83d\ude00`: "\U0001f600", `\\ud800`: `\ud800`, "é": "é",
		`\\ufffd\ufffd` + "\ufffd": `\ufffd` + "\ufffd\ufffd",
	} {
		got, err := cloudevents.Attribute("id").Extract(with(id))
		require.NoError(t, err, "%q", id)
		require.Equal(t, want, got, "%q", id)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(true, []byte(`{"specversion":"1.0","id":"a","source":"s","type":"t","data":{}}`))
	f.Add(false, []byte("\x0a\x01a\x12\x01s\x1a\x031.0\x22\x01t\x2a\x06\x0a\x01n\x12\x01\x08"))
	f.Fuzz(func(t *testing.T, isJSON bool, value []byte) {
		m := message(value, "application/cloudevents+protobuf")
		if isJSON {
			m = message(value, "application/cloudevents+json")
		}
		id, err := cloudevents.ID().Extract(m)
		require.True(t, err != nil || id != "")
		_ = cloudevents.Decoder(nil).Decode(t.Context(), m, new(payment))
		if err == nil && isJSON {
			require.True(t, json.Valid(value), "a valid event is valid JSON")
		}
	})
}
