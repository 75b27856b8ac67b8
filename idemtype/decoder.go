package idemtype

import (
	"context"
	"time"
)

// Decoder decodes the values of messages and may ask another service, such as a schema registry.
// [github.com/idem-go/idem.DecodeWith] sets the decoder of a handler.
//
// into is a non-nil pointer that Decode fills: a *T for a handler of T, and a *pb.Payment for a
// handler of *pb.Payment. A message with a nil value is not decoded.
//
// The first call for a message has a context that has ended. Decode then uses its own memory, such
// as cached schemas, and otherwise returns an error at once. So events are claimed, and duplicates
// are found, without the service. After an error of the first call, Decode is called again, while
// no claim and no transaction is held. The context of the second call lives for at most
// [ReadTimeout], also beyond the BusyWait of a processor. Decode must return soon after the end of
// that context.
//
// The error of the second call counts. An error without a mark means that the value cannot be
// decoded, and the event becomes a dead letter of [ClassUndecodable]. A mark means the same as on
// an error of a handler. After an error that is marked as unavailable the event waits, and no
// attempt is counted. An error that matches [context.DeadlineExceeded] or [context.Canceled] counts
// as unavailable. Logs and dead letters keep the text of the error, which must not quote the value.
//
// A Decoder is safe for concurrent use. If a Decoder is comparable, such as a pointer, the handlers
// that share it also share the state of its outages. A Decoder may have two more methods:
//
//   - String() string: the name in logs and in the status, such as the address of the registry.
//   - Ping(ctx context.Context) error: whether the service answers. While it does not, no event is
//     the cause of an outage, and [RetryPolicy].Outage does not count.
type Decoder interface {
	Decode(ctx context.Context, m *Message, into any) error
}

// ReadTimeout limits one call of a [Decoder].
const ReadTimeout = 10 * time.Second
