package watermill

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/idem-go/idem/dedup"
)

// TestPubSub_GoChannel runs Watermill's tests of Pub/Subs on a Pub/Sub in memory. The messages pass
// through each part of the adapter. The features are those of Watermill's own test of GoChannel. A
// message that comes again after its Ack fails the test.
//
// Watermill skips tests by the features. GoChannel has no order, consumer groups, old messages for
// new subscribers or server. So TestPublishSubscribeInOrder, TestNoAck, TestConsumerGroups,
// TestNewSubscriberReceivesOldMessages, TestContinueAfterSubscribeClose, TestConcurrentClose and
// TestReconnect are skipped here.
func TestPubSub_GoChannel(t *testing.T) {
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			tests.TestPubSub(t, tests.Features{ExactlyOnceDelivery: true, RequireSingleInstance: true, ForceShort: true},
				func(t *testing.T) (message.Publisher, message.Subscriber) {
					ps := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10_000, Persistent: true},
						watermill.NopLogger{})
					return ps, &subscriber{Subscriber: ps, t: t, part: part, acked: new(acked),
						scope: func(string) (dedup.Store, string) { return newStore(), watermill.NewUUID() }}
				}, nil)
		})
	}
}
