// Package schemaregistry decodes and encodes Avro, Protobuf and JSON Schema in Confluent's wire
// format, with the schemas of a schema registry. It was tested with Apicurio Registry 2.6 and 3.3,
// at their ccompat address. Registries of Confluent, Karapace and Redpanda have the same API, but
// were not tested. The package is a module of its own.
//
//	registry, err := schemaregistry.New(schemaregistry.Config{URLs: []string{"https://registry:8081"}})
//	r := idem.NewRouter(idem.DecodeWith(registry))
//	idem.On(r, "payment.completed", func(ctx context.Context, e idem.Event[*pb.Payment]) error {...})
//
// # Errors
//
// While the registry gives no valid answer, events wait if their schema is not cached, and no
// attempt is counted. The log says so once, the status names the registry, and these events are not
// dead-lettered. [idem.Decoder] has the details. After the answer that a schema ID or a reference of
// the schema is unknown, the event becomes a dead letter, and the error names the ID.
//
// Schemas never change, so they are cached for the life of the process. Callers with the same
// question share one request. The number of cached schemas, of unknown IDs and of requests at a
// time is limited.
//
// # Formats
//
// Avro is decoded into structs with avro tags, into maps, or into types that
// github.com/hamba/avro/v2 documents. [Config].AvroReaders has the readers' schemas. Protobuf is
// decoded into generated messages; the name of the message must be that of the Go type. A JSON
// Schema is checked with github.com/santhosh-tekuri/jsonschema/v6, and the value is decoded with
// encoding/json. A schema without $schema has draft 7. References between schemas of Avro and JSON
// are followed, also to deleted schemas.
//
// Schema IDs are read from the value. IDs in record headers, which some writers of Confluent's
// release 8 can choose, are not read.
package schemaregistry
