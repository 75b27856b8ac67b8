// Package cloudevents reads CloudEvents 1.0 in all modes of the Kafka protocol binding: binary
// mode, and structured mode in the JSON and Protobuf formats. The package is a module of its own.
//
//	r := idem.NewRouter(cloudevents.Options()...)
//	idem.On(r, "com.example.paid", func(ctx context.Context, e idem.Event[payment]) error {...})
//
// A message is in structured mode if its header content-type begins with application/cloudevents.
// An event has the same ID in each mode, and the ID that [idem.StandardID] finds in binary mode. So
// a producer may change the mode. Batches are refused, as the protocol binding for Kafka demands.
//
// [Decoder] decodes the data of the event. In binary mode that is the value of the message. In
// structured mode it is the member data or data_base64 of JSON, or the field binary_data, text_data
// or proto_data of Protobuf. An event with invalid Unicode in a JSON attribute is refused with
// [idem.ErrInvalid]. A handler of [Event] gets the attributes and the data as bytes.
package cloudevents
