package pgstore

import (
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Rule 12: the loss of the connection does not hide that the transaction was ended before.
func TestTxState_Rule12(t *testing.T) {
	for _, c := range []struct {
		status        byte
		outside, lost bool
		want          error
	}{
		{'T', false, false, nil},
		{'T', false, true, dedup.ErrUnavailable},
		{'T', true, false, dedup.ErrTxEnded},
		{'T', true, true, dedup.ErrTxEnded},
		{'I', false, false, dedup.ErrTxEnded}, // a pooler may hide the name
		{'I', false, true, dedup.ErrTxEnded},
		{'I', true, false, dedup.ErrTxEnded},
		{'I', true, true, dedup.ErrTxEnded},
		{'E', false, false, dedup.ErrTxAborted},
		{'E', false, true, dedup.ErrUnavailable},
		{'E', true, false, dedup.ErrTxAborted}, // the failure itself has reset the name
		{'E', true, true, dedup.ErrUnavailable},
	} {
		err := txState(c.status, c.outside, c.lost)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, c.want, "%c %v", c.status, c)
	}
}

// Rule 12: a transaction that is still in progress is not taken for one that is rolled back.
func TestIsCommitted_Rule12(t *testing.T) {
	for status, want := range map[string]struct {
		committed bool
		err       error
	}{
		"committed":   {true, nil},
		"aborted":     {false, nil},
		"in progress": {false, errUndecided},
		"":            {false, errUndecided}, // NULL, or no row
	} {
		committed, err := isCommitted(status)
		require.Equal(t, want.committed, committed, status)
		require.ErrorIs(t, err, want.err, status)
	}
}
