package dedup_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// The error of a store that is not set up matches ErrUnavailable, and names the fix.
func TestSetupError(t *testing.T) {
	cause := errors.New("SQLSTATE 42P01")
	err := fmt.Errorf("pgstore: claim: %w", &dedup.SetupError{Problem: "tables are missing", Fix: "run idem migrate up", Err: cause})
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "pgstore: claim: store unavailable: tables are missing: run idem migrate up: SQLSTATE 42P01")
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.EqualError(t, &dedup.SetupError{Problem: "p"}, "store unavailable: p")
}
