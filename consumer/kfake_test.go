package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/observe"
)

// TestKfake runs the way that examples and users' tests run: sarama against a Kafka inside the
// process, with every kind of membership.
func TestKfake(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		for _, static := range []bool{false, true} {
			t.Run(fmt.Sprintf("cooperative=%v,static=%v", cooperative, static), func(t *testing.T) {
				t.Parallel()
				brokers := fakeBrokers(t, 6, "orders")
				cfg := Config{
					Brokers: brokers, Group: "g", Topics: []string{"orders"}, Cooperative: cooperative, Store: forever(),
					CreateDeadLetterTopics: &TopicSpec{}, Grace: 5 * time.Second,
				}
				again := new(duplicates)
				cfg.Observers = []observe.Observer{again}
				var got tally
				handle := func(ctx context.Context, m *idem.Message) error {
					if eventID(m) == "7" {
						return idem.Permanent(errTest)
					}
					got.add(eventID(m))
					return pause(ctx, 5*time.Millisecond)
				}
				produceEvents(t, brokers, "orders", 0, 600)
				var members []*member
				for i := range 3 {
					if static {
						cfg.InstanceID = fmt.Sprint("pod-", i)
					}
					m := start(t, cfg, routed(handle))
					members = append(members, m)
					require.Eventually(t, func() bool {
						if m.Ready() != nil {
							return false
						}
						for _, m := range members {
							if claimsOf(m) != 6/len(members) {
								return false
							}
						}
						return true
					}, soon, poll)
				}
				produceEvents(t, brokers, "orders", 600, 700)
				require.Eventually(t, func() bool { return got.events() == 699 }, soon, poll)
				letter := readAll(t, brokers, "orders.g.dlq", 1)[0]
				require.Equal(t, "permanent", header(letter, deadletter.HeaderErrorClass))
				for i, m := range members {
					require.NoError(t, m.end())
					rest := members[i+1:]
					if static || len(rest) == 0 {
						continue // a static member keeps its partitions
					}
					require.Eventually(t, func() bool {
						held := 0
						for _, m := range rest {
							held += claimsOf(m)
						}
						return held == 6 // no stop in the middle of a rebalance
					}, soon, poll)
				}
				require.Equal(t, 699, got.total())
				require.Empty(t, again.seen())
				sum := int64(0)
				for _, offset := range committed(t, brokers, "g", "orders", 0, 1, 2, 3, 4, 5) {
					sum += offset
				}
				require.EqualValues(t, 700, sum)
			})
		}
	}
}
