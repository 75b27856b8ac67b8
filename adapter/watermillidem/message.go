package watermillidem

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
)

// uuidHeader has the UUID of a message, as Watermill's marshaler for Kafka writes it.
const uuidHeader = "_watermill_message_uuid"

// ID returns the extractor of the event ID: [idem.StandardID], else the UUID of the message. The
// UUID names the event only if the producer writes the same UUID at each retry. Pass the result to
// [idem.ID].
func ID() idem.Extractor { return idem.FirstOf(idem.StandardID(), idem.FromHeader(uuidHeader)) }

// Position is the place of a message in a log such as a topic of Kafka.
type Position struct {
	Partition int32
	Offset    int64
	Time      time.Time // of the record
	Key       []byte    // of the record
}

// Option changes how messages are settled.
type Option func(*options)

type options struct {
	position func(context.Context) (Position, bool)
}

// WithPosition sets the function that finds the position of a message in its context. With
// watermill-kafka it reads kafka.MessagePartitionFromCtx and its like. The processor then records
// progress, by which a SQL store deletes expired rows. The default is no position: a SQL store
// keeps all rows of the scope, and the other stores forget by the time of their server. A message
// that comes again after its dead letter is then a copy of a dead event, and becomes a dead letter
// too. Dead letters have partition 0 and offset 0.
//
// The subscriber must deliver the messages of a partition one at a time, and end the context of a
// message that it gives up. If an unsettled message has ended so, the next other message of the
// partition is reported to [idem.Processor.Assigned], and the progress goes on there.
func WithPosition(f func(context.Context) (Position, bool)) Option {
	return func(o *options) { o.position = f }
}

func build(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// convert returns the message of Idem. The result is false if the position is not known.
func (o options) convert(m *message.Message) (*idem.Message, bool) {
	ctx := m.Context()
	out := &idem.Message{
		Topic: message.SubscribeTopicFromCtx(ctx), Offset: -1, Value: m.Payload,
		Headers: make([]idem.Header, 0, len(m.Metadata)+1),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Metadata)) {
		if name != uuidHeader {
			out.Headers = append(out.Headers, idem.Header{Key: name, Value: []byte(m.Metadata[name])})
		}
	}
	if m.UUID != "" {
		out.Headers = append(out.Headers, idem.Header{Key: uuidHeader, Value: []byte(m.UUID)})
	}
	if o.position == nil {
		return out, false
	}
	at, ok := o.position(ctx)
	if ok {
		out.Partition, out.Offset, out.Time, out.Key = at.Partition, at.Offset, at.Time, at.Key
	}
	return out, ok
}
