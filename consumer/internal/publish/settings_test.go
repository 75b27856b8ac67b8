package publish

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// TestConfigure_K35: an acknowledged record is on all in-sync replicas, and a retry neither doubles
// nor reorders records. A client that could lose records or hide results is refused.
func TestConfigure_K35(t *testing.T) {
	sc := settings()
	require.True(t, sc.Producer.Idempotent)
	require.Equal(t, sarama.WaitForAll, sc.Producer.RequiredAcks)
	require.Positive(t, sc.Producer.Retry.Max)
	require.NoError(t, sc.Validate())
	require.Empty(t, Check(sc))
	for name, spoil := range map[string]func(*sarama.Config){
		"acks":      func(sc *sarama.Config) { sc.Producer.RequiredAcks = sarama.WaitForLocal },
		"no acks":   func(sc *sarama.Config) { sc.Producer.RequiredAcks = sarama.NoResponse },
		"successes": func(sc *sarama.Config) { sc.Producer.Return.Successes = false },
		"errors":    func(sc *sarama.Config) { sc.Producer.Return.Errors = false },
	} {
		sc := settings()
		spoil(sc)
		require.Len(t, Check(sc), 1, name)
	}
}
