package main

import (
	"io"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// A person must know whether the records may be gone.
func TestPurgeError(t *testing.T) {
	t.Parallel()
	require.NoError(t, purgeError("dead", nil))
	for _, refused := range []error{sarama.ErrPolicyViolation, sarama.ErrTopicAuthorizationFailed} {
		err := purgeError("dead", sarama.Wrap(sarama.ErrDeleteRecords, refused))
		require.ErrorIs(t, err, refused)
		require.NotErrorIs(t, err, errMayBeDeleted)
	}
	for _, open := range []error{io.EOF, sarama.ErrRequestTimedOut, sarama.ErrNotLeaderForPartition} {
		err := purgeError("dead", sarama.Wrap(sarama.ErrDeleteRecords, open))
		require.ErrorIs(t, err, open)
		require.ErrorIs(t, err, errMayBeDeleted, "another partition may be done")
	}
}
