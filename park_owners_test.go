package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// rule 4: two owners take up one queue, as one of them does not know yet that he has lost the partition. The first postpones an
// event that the other one waits for: what is behind it must wait for both.
func TestPark_PostponedByTheOtherOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		runs := map[string]int{}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			runs[e.ID]++
			switch {
			case e.ID == "a1" && runs["a1"] == 1:
				return errBoom
			case e.ID == "a1":
				time.Sleep(20 * time.Second) // the other one begins meanwhile
			case e.ID == "a2" && runs["a2"] == 1:
				time.Sleep(20 * time.Second)
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second, 2*time.Minute))
		before := b.start()
		stop := b.takesUp()
		_, err := before.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("a", "a3", 3), inQueue("a", "a4", 4),
		})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.start()
		stopNext := b.takesUp()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		stopNext()
		require.NoError(t, before.Close())
		require.Equal(t, []string{"done a1", "done a2", "done a3", "done a4"}, done(b))
	})
}
