package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// Halt has blocked rows, and then all relays change to Skip. No later row overtakes the blocked
// rows. After a person has acted, all rows are published in their order (O-09, O-10).
func TestRelay_HaltThenSkip_O10(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(m *idem.Message) fate {
			if idOf(m) == "a2" || idOf(m) == "b1" {
				return fate{err: idem.ErrTooLarge}
			}
			return acknowledged
		}
		for _, id := range []string{"a1", "a2", "a3", "a4"} {
			b.table.add("t", "a", id)
		}
		halt := b.start(nil)
		b.sleep(time.Second)
		halt.stop()
		require.Equal(t, 2, b.table.count(blocked))

		r := b.start(func(c *outbox.RelayConfig, _ *faults) { c.WhenParked = outbox.Skip })
		for _, id := range []string{"b1", "b2"} {
			b.table.add("t", "b", id)
		}
		b.table.add("t", "a", "a5")
		b.sleep(time.Minute)
		require.Equal(t, []string{"a1"}, b.broker.all("t", "a"), "a5 overtook a3")
		require.Equal(t, []string{"b2"}, b.broker.all("t", "b"))
		require.Equal(t, 3, b.table.count(blocked))
		require.Less(t, r.store.count("settle"), 10, "a row that is blocked is not fetched again")

		b.table.skip("a2")
		b.drained(time.Second)
		require.Equal(t, []string{"a1", "a3", "a4", "a5"}, b.broker.all("t", "a"))
	})
}

// skip ends the parking of the row with an ID, as an operator does.
func (t *table) skip(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range &t.shards {
		for _, r := range list {
			if r.state == parked && r.Entry.ID == id {
				t.set(r, sent)
			}
		}
	}
	for _, list := range &t.shards {
		for _, r := range list {
			if r.state == blocked && !t.isBehind(r) {
				t.set(r, waiting)
			}
		}
	}
}
