package dedup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// the store is the cause if the time limit of a call is over, and the caller's time is not.
func TestCallTookTooLong_R19(t *testing.T) {
	alive := t.Context()
	over, cancel := context.WithDeadline(alive, time.Unix(1, 0))
	defer cancel()
	gone, cancel := context.WithCancel(alive)
	cancel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		ctx, bounded context.Context //nolint:containedctx // a case of the table
		err          error
		want         bool
	}{
		"no error":                {alive, over, nil, false},
		"in time":                 {alive, alive, context.DeadlineExceeded, false},
		"too long":                {alive, over, context.DeadlineExceeded, true},
		"too long, wrapped":       {alive, over, fmt.Errorf("dial: %w", context.DeadlineExceeded), true},
		"refused at the end":      {alive, over, refused, false},
		"the caller has gone":     {gone, gone, context.Canceled, false},
		"the caller's time":       {over, over, context.DeadlineExceeded, false},
		"unavailable at the end":  {alive, over, errors.Join(errOpen, context.DeadlineExceeded), false},
		"given up":                {alive, over, fmt.Errorf("%w: %w", errNoAnswer, context.DeadlineExceeded), false},
		"cancelled by the client": {alive, over, context.Canceled, false},
	} {
		got := tooLong(c.ctx, c.bounded, c.err)
		if !c.want {
			require.Equal(t, c.err, got, name)
			continue
		}
		require.ErrorIs(t, got, errNoAnswer, name)
		require.ErrorIs(t, got, ErrUnavailable, name)
		require.ErrorIs(t, got, c.err, name)
	}
}
