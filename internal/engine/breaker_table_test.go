package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/throttle"
)

// Only an outage that the handler reports counts, and only a success is an answer.
func TestBreakerEnd(t *testing.T) {
	err := errors.New("boom")
	for name, c := range map[string]struct {
		o    outcome
		want throttle.RunEnd
	}{
		"success":                  {outcome{meaning: succeeded}, throttle.RunSucceeded},
		"outage of the dependency": {outcome{meaning: unavailable, marked: true, err: err}, throttle.RunUnavailable},
		"and without an effect":    {outcome{meaning: unavailable, marked: true, unapplied: true, err: err}, throttle.RunUnavailable},
		"outage of the store":      {outcome{meaning: unavailable, err: err}, throttle.RunUnsure},
		"outage of a reader":       {outcome{meaning: unavailable, marked: true, unbegun: true, err: err}, throttle.RunUnsure},
		"failure":                  {outcome{meaning: transient, err: err}, throttle.RunUnsure},
		"not applied":              {outcome{meaning: notApplied, err: err}, throttle.RunUnsure},
		"panic, time-out":          {outcome{meaning: unknown, err: err}, throttle.RunUnsure},
		"permanent":                {outcome{meaning: permanent, err: err}, throttle.RunUnsure},
		"stop":                     {outcome{meaning: stopped, err: err}, throttle.RunUnsure},
		"abandoned":                {outcome{meaning: abandoned, err: err}, throttle.RunUnsure},
		"claim lost":               {outcome{meaning: claimLost, err: err}, throttle.RunUnsure},
	} {
		require.Equal(t, c.want, breakerEnd(c.o), name)
	}
}
