package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// ordered runs a relay with a producer that has several rows of an aggregate under way.
func (b *bench) ordered() *running {
	b.t.Helper()
	return b.start(func(c *outbox.RelayConfig, _ *faults) {
		c.Producer = &orderedProducer{producer: c.Producer.(*producer)}
	})
}

func (b *bench) add(key string, ids ...string) {
	for _, id := range ids {
		b.table.commit(b.table.draw(), outbox.Entry{Topic: "t", Key: key, ID: id, Type: "test", Payload: []byte("secret")})
	}
}

// All rows of an aggregate are in one call, in their order.
func TestRelay_InOrder_OneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.add("a", "a1", "a2")
		b.add("b", "b1")
		r := b.ordered()
		b.drained(time.Minute)
		require.Equal(t, [][]string{{"in order", "a1", "a2", "b1"}}, r.producer.rounds())
		require.Equal(t, []string{"a1", "a2"}, b.broker.all("t", "a"))
	})
}

// A refused row is found and parked in the same round. The rows behind it wait, and those of other
// aggregates go on (O-09).
func TestRelay_InOrder_RefusedRow_O09(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(m *idem.Message) fate {
			if idOf(m) == "a2" {
				return fate{err: idem.ErrRefused}
			}
			return acknowledged
		}
		b.add("a", "a1", "a2", "a3")
		b.add("b", "b1", "b2")
		b.ordered()
		b.drained(time.Minute)
		require.Equal(t, []string{"a1"}, b.broker.all("t", "a"))
		require.Equal(t, []string{"b1", "b2"}, b.broker.firsts("t", "b"))
		states := b.table.states()
		require.Equal(t, parked, states["a2"])
		require.Equal(t, blocked, states["a3"])
	})
}

// While the broker fails, rows go one by one, so that one broken partition holds up no other. Later
// they go together again.
func TestRelay_InOrder_NotWhileBrokerFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		until := time.Now().Add(30 * time.Second)
		b.fate = func(*idem.Message) fate {
			if time.Now().Before(until) {
				return fate{err: errBroker}
			}
			return acknowledged
		}
		b.add("a", "a1", "a2")
		r := b.ordered()
		b.sleep(29 * time.Second)
		calls := r.producer.rounds()
		require.Greater(t, len(calls), 3)
		require.Equal(t, []string{"in order", "a1", "a2"}, calls[0])
		for _, call := range calls[1:] {
			require.Equal(t, []string{"a1"}, call)
		}
		b.drained(time.Minute)
		b.add("a", "a3", "a4")
		b.drained(time.Minute)
		calls = r.producer.rounds()
		require.Equal(t, []string{"in order", "a3", "a4"}, calls[len(calls)-1])
		require.Equal(t, []string{"a1", "a2", "a3", "a4"}, b.broker.firsts("t", "a"))
	})
}
