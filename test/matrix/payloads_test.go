package matrix

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/cloudevents"
	"github.com/idem-go/idem/codec/jsonv2"
	"github.com/idem-go/idem/codec/schemaregistry"
)

const (
	plainJSON    = "JSON"
	fastJSON     = "JSON, `jsonv2`"
	avroData     = "Avro"
	protobufData = "Protobuf"
	jsonSchema   = "JSON Schema"
	binary       = "CloudEvents, binary mode"
	structured   = "CloudEvents, structured mode"
	changeEvent  = "Debezium, change event in JSON"
)

// payloadNames are the rows of the second table.
var payloadNames = append(tested(), "CloudEvents with data in Avro or Protobuf",
	"Debezium, change event in Avro", "Debezium, outbox event router")

// tested are all payloads that have a test.
func tested() []string {
	return []string{
		plainJSON, fastJSON, avroData, protobufData, jsonSchema, binary, structured, changeEvent,
	}
}

const kind = "payment.completed"

// payload is a row of the second table.
type payload struct {
	name     string
	options  []idem.Option
	register func(r *idem.Router, as shape, to effects)
	// encode returns the ID, as the store sees it, and the record of event number i.
	encode func(t *testing.T, i int) (id string, value []byte, headers []kgo.RecordHeader)
}

// change is a change event of Debezium.
type change struct {
	Payload struct{ After payment }
}

// payment is the data of JSON, Avro and CloudEvents.
type payment struct {
	ID     string `avro:"id" json:"id"`
	Amount int64  `avro:"amount" json:"amount"`
}

func payloads(t *testing.T) []payload {
	server := srfake.New()
	t.Cleanup(server.Close)
	registry, err := schemaregistry.New(schemaregistry.Config{URLs: []string{server.URL()}})
	require.NoError(t, err)
	ofPayment := func(r *idem.Router, as shape, to effects) {
		register(r, kind, as, to, func(p payment) int64 { return p.Amount })
	}
	headers := func(id string) []kgo.RecordHeader {
		return []kgo.RecordHeader{
			{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("payment.completed")},
		}
	}
	plain := func(_ *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
		id := fmt.Sprint("json-", i)
		return id, fmt.Appendf(nil, `{"event_id":%q,"type":"payment.completed","amount":%d}`, id, i), nil
	}
	encoder := func(subject, format, schema string) *schemaregistry.Encoder {
		e, err := registry.Encoder(schemaregistry.EncoderConfig{
			Subject: subject, Register: true, Schema: schema, Type: format,
		})
		require.NoError(t, err)
		return e
	}
	avro := encoder("avro", "AVRO", `{"type":"record","name":"Payment","fields":[
		{"name":"id","type":"string"},{"name":"amount","type":"long"}]}`)
	schema := encoder("json", "JSON", `{"title":"Payment","type":"object","properties":{
		"id":{"type":"string"},"amount":{"type":"integer"}},"required":["id"]}`)
	protobuf := encoder("protobuf", "PROTOBUF",
		"syntax = \"proto3\";\npackage google.protobuf;\nmessage Int64Value { int64 value = 1; }")
	field := []idem.Option{
		idem.DecodeWith(registry), idem.ID(schemaregistry.Field[payment](registry, "id")),
		idem.Type(idem.FromHeader("event-type")),
	}
	inValue := func(e *schemaregistry.Encoder, name string) func(*testing.T, int) (string, []byte, []kgo.RecordHeader) {
		return func(t *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
			id := fmt.Sprint(name, "-", i)
			value, err := e.Encode(t.Context(), payment{id, int64(i)})
			require.NoError(t, err)
			return id, value, headers("")[1:]
		}
	}
	return []payload{
		{plainJSON, nil, ofPayment, plain},
		{fastJSON, []idem.Option{jsonv2.Decode()}, ofPayment, plain},
		{avroData, field, ofPayment, inValue(avro, "avro")},
		{protobufData, []idem.Option{idem.DecodeWith(registry)},
			func(r *idem.Router, as shape, to effects) {
				register(r, kind, as, to, func(v *wrapperspb.Int64Value) int64 { return v.GetValue() })
			},
			func(t *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
				id := fmt.Sprint("protobuf-", i)
				value, err := protobuf.Encode(t.Context(), wrapperspb.Int64(int64(i)))
				require.NoError(t, err)
				return id, value, headers(id)
			}},
		{jsonSchema, field, ofPayment, inValue(schema, "json")},
		{binary, cloudevents.Options(), ofPayment,
			func(_ *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
				id := fmt.Sprint("binary-", i)
				return "joined:shop:" + id, fmt.Appendf(nil, `{"amount":%d}`, i), []kgo.RecordHeader{
					{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(id)},
					{Key: "ce_source", Value: []byte("shop")}, {Key: "ce_type", Value: []byte("payment.completed")},
					{Key: "content-type", Value: []byte("application/json")},
				}
			}},
		{structured, cloudevents.Options(), ofPayment,
			func(_ *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
				id := fmt.Sprint("structured-", i)
				value := fmt.Appendf(nil, `{"specversion":"1.0","type":"payment.completed","source":"shop",
					"id":%q,"data":{"amount":%d}}`, id, i)
				return "joined:shop:" + id, value, []kgo.RecordHeader{
					{Key: "content-type", Value: []byte("application/cloudevents+json")},
				}
			}},
		{changeEvent, changeID(),
			func(r *idem.Router, as shape, to effects) {
				register(r, "c", as, to, func(c change) int64 { return c.Payload.After.Amount })
			},
			func(_ *testing.T, i int) (string, []byte, []kgo.RecordHeader) {
				return fmt.Sprintf("payments:row-%d:%d", i, 40+i), fmt.Appendf(nil, `{"payload":{"op":"c","before":null,
					"after":{"id":"row-%d","amount":%d},"source":{"table":"payments","lsn":%d}}}`, i, i, 40+i), nil
			}},
	}
}

// changeID are the options of docs/payloads.md for change events.
func changeID() []idem.Option {
	return []idem.Option{
		idem.ID(idem.Joined(idem.FromJSON("payload.source.table"), idem.FromJSON("payload.after.id"),
			idem.FromJSON("payload.source.lsn"))),
		idem.Type(idem.FromJSON("payload.op")),
	}
}
