package sqlstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P-18: the end of a store waits for COMMITs that go on, but not for ever.
func TestCommitsWait_P18(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c commits
		require.NoError(t, c.wait(time.Second), "no COMMIT has begun")
		answer := make(chan error)
		ended := false
		c.after(answer, func() { ended = true })
		require.ErrorContains(t, c.wait(time.Second), "has not answered a COMMIT in 1s")
		time.AfterFunc(time.Second, func() { answer <- nil })
		require.NoError(t, c.wait(time.Minute))
		require.True(t, ended)
		require.NoError(t, c.wait(time.Second))
	})
}
