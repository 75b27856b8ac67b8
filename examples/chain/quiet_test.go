package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestUntil: until waits out a temporary error of Kafka, as it occurs before the first group. Any
// other error ends the wait.
func TestUntil(t *testing.T) {
	young := fmt.Errorf("describe: %w", &kadm.ShardErrors{Name: "DescribeGroups", Errs: []kadm.ShardError{{Err: kerr.CoordinatorNotAvailable}}})
	asked := 0
	require.NoError(t, (&chain{}).until(t.Context(), func(context.Context) (bool, error) {
		if asked++; asked < 3 {
			return false, young
		}
		return true, nil
	}))
	require.Equal(t, 3, asked)
	for _, bad := range []error{kerr.GroupAuthorizationFailed, errors.New("unplugged")} {
		require.ErrorIs(t, (&chain{}).until(t.Context(), func(context.Context) (bool, error) { return false, bad }), bad)
	}
}
