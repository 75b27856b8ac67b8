package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefaults_NoTransactions_K33: no producer of this package is a transactional one. Duplicates
// are found by their event ID.
func TestDefaults_NoTransactions_K33(t *testing.T) {
	sc, err := DefaultSaramaConfig(good())
	require.NoError(t, err)
	require.Empty(t, sc.Producer.Transaction.ID)
	sc, err = producerConfig(good())
	require.NoError(t, err)
	require.Empty(t, sc.Producer.Transaction.ID)
}
