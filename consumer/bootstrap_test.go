package consumer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// TestKfake_OneBrokerAnswers_K21: brokers of the list that are silent or refuse connections delay
// neither the start nor the first dead letter. A read of a silent broker would take half a minute.
func TestKfake_OneBrokerAnswers_K21(t *testing.T) {
	t.Parallel()
	silent, refuses := []string{testenv.SilentAddr(t), testenv.SilentAddr(t), testenv.SilentAddr(t)}, testenv.FreeAddr(t)
	for range 3 { // sarama asks in random order
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cluster := oneBroker(t)
			answers := cluster.ListenAddrs()
			produceEvents(t, answers, "orders", 0, 2)
			began := time.Now()
			m := start(t, Config{
				Brokers: slices.Concat(silent, []string{refuses}, answers), Group: "g", Topics: []string{"orders"},
				Store: forever(), OnGap: EarliestOnGap,
			}, routed(func(_ context.Context, m *idem.Message) error { return idem.Permanent(errTest) }))
			require.Len(t, readAll(t, answers, "orders.g.dlq", 2), 2)
			require.NoError(t, m.end())
			require.Less(t, time.Since(began), 20*time.Second)
		})
	}
}

// TestOpenProducer_Topics_O15: the look at topics finds the broker that answers.
func TestOpenProducer_Topics_O15(t *testing.T) {
	t.Parallel()
	list := append(fakeBrokers(t, 1, "orders"), testenv.FreeAddr(t))
	for range 10 { // sarama asks in random order
		p, err := OpenProducer(Config{Brokers: list})
		require.NoError(t, err)
		require.NoError(t, p.CheckTopics(t.Context(), []string{"orders"}))
		require.ErrorIs(t, p.CheckTopics(t.Context(), []string{"payments"}), idem.ErrNoTopic)
		require.NoError(t, p.Close())
	}
}

// TestOpenProducer_OldVersion_K37: a version below that of the brokers is harmless.
func TestOpenProducer_OldVersion_K37(t *testing.T) {
	t.Parallel()
	p, err := OpenProducer(Config{
		Brokers: fakeBrokers(t, 1, "orders"), Sarama: func(sc *sarama.Config) { sc.Version = sarama.V2_6_0_0 },
	})
	require.NoError(t, err)
	require.NoError(t, p.Produce(t.Context(), &idem.Message{Topic: "orders", Value: []byte("1")}))
	require.NoError(t, p.Close())
}
