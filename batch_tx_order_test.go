package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Rule 4: an event that is too old stops the consumer, and the events behind it in its Kafka key do
// not run. They run after it, when an operator lets it run.
func TestBatchTx_NoneOvertakesOneThatIsTooOld_Rule4(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		p := b.start()
		msgs := []*idem.Message{
			keyed("paid", "e000", "b", 0), keyed("paid", "a1", "a", 1), keyed("paid", "a2", "a", 2),
		}
		old := dedup.Key{Scope: "g", Type: "paid", ID: "a1"}
		s.state[old] = dedup.Answer{Verdict: dedup.TooOld}
		n, err := p.HandleBatch(t.Context(), msgs)
		require.ErrorIs(t, err, idem.ErrTooOld)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"e000"}, s.effects)
		delete(s.state, old) // it may run now
		n, err = p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"e000", "a1", "a2"}, s.effects)
	})
}

// Rules 4 and 6: the dead letter of a copy goes out before the events behind the copy run.
func TestBatchTx_NoneOvertakesACopyThatIsDead_Rule4(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine, once, idem.KeyOrdered(time.Hour))
		p := b.start()
		s.state[dedup.Key{Scope: "g", Type: "paid", ID: "a1"}] = dedup.Answer{
			Verdict: dedup.Dead, First: dedup.Origin{Topic: "orders", Partition: 7},
		}
		n, err := p.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("b", "b1", 3),
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"dead letter: already-dead", "run a2", "run b1"}, b.all())
	})
}

// An exception does not take apart a group in which no other event has its Kafka key.
func TestBatchTx_AnExceptionOfAnotherKeyLeavesTheGroupWhole(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine, idem.WhenTooOld(idem.DeadLetterTooOld))
		p := b.start()
		s.state[dedup.Key{Scope: "g", Type: "paid", ID: "e003"}] = dedup.Answer{Verdict: dedup.TooOld}
		_, err := p.HandleBatch(t.Context(), series(10))
		require.NoError(t, err)
		require.Equal(t, []int{10, 1}, s.sizes)
		s.allOnce(t, 10, "e003")
	})
}
